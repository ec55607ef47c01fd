#include "checkpoint/manifest.h"

#include <atomic>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "base/text.h"
#include "host/file.h"
#include "host/sha256.h"

namespace braid::inline checkpoint {
namespace {

// 2: entries of files are slices with hashes of their own; 1: files hold whole tensors.
constexpr int64_t kFormat = 2, kOldestFormat = 1;
constexpr const char* kTensors = "tensors";

std::atomic<int64_t> g_manifests{0}, g_states{0};

Status damaged(const std::string& path, const std::string& what) {
  return {Code::kDataLoss, cat(path, ": ", what)};
}

Status check_content(const std::string& path, std::string_view text,
                     const ManifestEntry& expected) {
  if (sha256_hex(text) == expected.sha256) return ok_status();
  return damaged(path, "its content does not match the SHA-256 in the manifest");
}

Json manifest_json(const Manifest& manifest) {
  Json json = {{"format", kFormat}, {"step", manifest.step}};
  json["files"] = Json::object();
  json["metrics"] = Json::object();
  for (const auto& [name, entry] : manifest.files) json["files"][name] = entry_json(entry);
  for (const auto& [name, value] : manifest.metrics)
    if (std::isfinite(value)) json["metrics"][name] = value;
  if (manifest.tensors) json[kTensors] = *manifest.tensors;
  return json;
}

Result<Manifest> manifest_of(const Json& json) {
  Manifest manifest;
  BRAID_ASSIGN(const auto format, json_field<int64_t>(json, "format"));
  if (format < kOldestFormat || format > kFormat)
    return invalid_input(cat("format ", format, ", this program reads ", kOldestFormat, " to ",
                             kFormat, "; go on with the version of Braid that wrote it"));
  BRAID_ASSIGN(manifest.step, json_field<int64_t>(json, "step"));
  using Files = std::map<std::string, Json>;
  BRAID_ASSIGN(const auto files, json_field<Files>(json, "files"));
  for (const auto& [name, entry] : files) {
    BRAID_ASSIGN(manifest.files[name], manifest_entry(entry));
  }
  using Row = std::map<std::string, double>;
  BRAID_ASSIGN(manifest.metrics, json_field<Row>(json, "metrics"));
  using Tensors = std::map<std::string, SliceIndex>;
  if (json.contains(kTensors)) {
    BRAID_ASSIGN(manifest.tensors, json_field<Tensors>(json, kTensors));
  }
  return manifest;
}

}  // namespace

Json entry_json(const ManifestEntry& entry) {
  return {{"bytes", entry.size_bytes},
          {entry.of_header ? "header_sha256" : "sha256", entry.sha256}};
}

Result<ManifestEntry> manifest_entry(const Json& json) {
  ManifestEntry out;
  BRAID_ASSIGN(out.size_bytes, json_field<int64_t>(json, "bytes"));
  out.of_header = json.contains("header_sha256");
  BRAID_ASSIGN(out.sha256,
               json_field<std::string>(json, out.of_header ? "header_sha256" : "sha256"));
  return out;
}

Status write_manifest(const std::string& folder, const Manifest& manifest) {
  Json json = manifest_json(manifest);
  json["sha256"] = sha256_hex(json.dump());
  return write_file_atomic(join_path(folder, kManifestFile), json.dump(2) + "\n");
}

Result<Manifest> read_manifest(const std::string& folder) {
  const std::string path = join_path(folder, kManifestFile);
  ++g_manifests;
  BRAID_ASSIGN(const std::string text, read_file(path));
  auto parsed = parse_json(text, path);
  if (!parsed.ok()) return damaged(path, "is not valid JSON");
  Json json = std::move(parsed).value();
  const auto stated = json.is_object() ? json_field_or<std::string>(json, "sha256", "")
                                       : Result<std::string>(std::string());
  if (json.is_object()) json.erase("sha256");
  if (!stated.ok() || *stated != sha256_hex(json.dump()))
    return damaged(path, "its content does not match its own SHA-256");
  auto manifest = manifest_of(json);
  if (!manifest.ok()) return damaged(path, manifest.status().message());
  manifest->sha256 = *stated;
  return manifest;
}

Result<Json> read_state(const std::string& folder, const Manifest& manifest) {
  const std::string path = join_path(folder, kStateFile);
  const auto found = manifest.files.find(kStateFile);
  if (found == manifest.files.end()) return damaged(path, "the manifest does not list it");
  BRAID_TRY(check_size(path, found->second));
  ++g_states;
  const auto text = read_file(path);
  if (!text.ok()) return damaged(path, "cannot be read");
  BRAID_TRY(check_content(path, *text, found->second));
  return parse_json(*text, path);
}

CheckpointReads checkpoint_reads() { return {g_manifests, g_states}; }

Status check_size(const std::string& path, const ManifestEntry& expected) {
  std::error_code error;
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path, error));
  if (error) return damaged(path, path_exists(path) ? "cannot be read" : "is missing");
  if (size == expected.size_bytes) return ok_status();
  return damaged(path, cat("has ", size, " bytes, the manifest says ", expected.size_bytes));
}

Status check_file(const std::string& path, const ManifestEntry& expected) {
  BRAID_TRY(check_size(path, expected));
  const auto file = MappedFile::open(path);
  if (!file.ok()) return damaged(path, "cannot be read");
  return check_content(path, file->text(), expected);
}

Status check_sizes(const std::string& folder, const Manifest& manifest) {
  for (const auto& [name, entry] : manifest.files)
    BRAID_TRY(check_size(join_path(folder, name), entry));
  return ok_status();
}

}  // namespace braid::inline checkpoint
