// The manifest of a checkpoint: which files it has, with size and SHA-256 each, and a hash of the
// manifest itself. Not for callers outside checkpoint. Functions are thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"

namespace braid::inline checkpoint {

inline constexpr const char* kManifestFile = "manifest.json";

struct ManifestEntry {
  int64_t size_bytes = 0;
  std::string sha256;  // 64 hexadecimal digits, as sha256sum prints them
};

struct Manifest {
  int64_t step = 0;
  std::map<std::string, ManifestEntry> files;  // by name within the folder
  std::map<std::string, double> metrics;
};

// Hashes the named files of a folder and writes its manifest.
Status write_manifest(const std::string& folder, int64_t step,
                      const std::vector<std::string>& files,
                      const std::map<std::string, double>& metrics);

// Reads and checks the manifest alone. kNotFound: there is none; kDataLoss: it is damaged.
Result<Manifest> read_manifest(const std::string& folder);

// Compares every file with the manifest; kDataLoss names the first that is missing or differs.
Status check_files(const std::string& folder, const Manifest& manifest);

}  // namespace braid::inline checkpoint
