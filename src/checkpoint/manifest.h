// The manifest of a checkpoint: which files it has, with size and SHA-256 each, which of them has
// which slices of tensors, and a hash of the manifest itself. Not for callers outside checkpoint.
// Functions are thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "checkpoint/slice_index.h"

namespace braid::inline checkpoint {

inline constexpr const char* kManifestFile = "manifest.json";
inline constexpr const char* kStateFile = "state.json";

struct ManifestEntry {
  int64_t size_bytes = 0;
  std::string sha256;  // 64 hexadecimal digits, as sha256sum prints them
  // Of a file of slices: the hash is of its header, which has those of its entries, so that who
  // reads a part of a file need not read all of it. Files of format 1 have a hash of the whole.
  bool of_header = false;
};

Json entry_json(const ManifestEntry& entry);
Result<ManifestEntry> manifest_entry(const Json& json);

struct Manifest {
  int64_t step = 0;
  std::map<std::string, ManifestEntry> files;  // by name within the folder
  std::map<std::string, double> metrics;
  // By group; none of a checkpoint that was written before manifests said it.
  std::optional<std::map<std::string, SliceIndex>> tensors = std::nullopt;
  std::string sha256 = "";  // of one that was read, its own
};

Status write_manifest(const std::string& folder, const Manifest& manifest);

// Reads and checks the manifest alone. kNotFound: there is none; kDataLoss: it is damaged.
Result<Manifest> read_manifest(const std::string& folder);
// Reads state.json and checks it. kDataLoss names the file.
Result<Json> read_state(const std::string& folder, const Manifest& manifest);
// How often this process has done either.
struct CheckpointReads {
  int64_t manifests = 0, states = 0;
};
CheckpointReads checkpoint_reads();

// kDataLoss names the file: it is missing or has another size; or another content, by the hash of
// the whole file. REQUIRES: not of_header.
Status check_size(const std::string& path, const ManifestEntry& expected);
Status check_file(const std::string& path, const ManifestEntry& expected);
// check_size() of every file.
Status check_sizes(const std::string& folder, const Manifest& manifest);

}  // namespace braid::inline checkpoint
