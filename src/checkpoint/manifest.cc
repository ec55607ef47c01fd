#include "checkpoint/manifest.h"

#include <cmath>

#include "base/json.h"
#include "base/text.h"
#include "host/file.h"
#include "host/sha256.h"

namespace braid::inline checkpoint {
namespace {

constexpr int64_t kFormat = 1;

Status damaged(const std::string& path, const std::string& what) {
  return {Code::kDataLoss, cat(path, ": ", what)};
}

Json manifest_json(const Manifest& manifest) {
  Json json = {{"format", kFormat}, {"step", manifest.step}};
  json["files"] = Json::object();
  json["metrics"] = Json::object();
  for (const auto& [name, entry] : manifest.files)
    json["files"][name] = {{"bytes", entry.size_bytes}, {"sha256", entry.sha256}};
  for (const auto& [name, value] : manifest.metrics)
    if (std::isfinite(value)) json["metrics"][name] = value;
  return json;
}

Result<Manifest> manifest_of(const Json& json) {
  Manifest manifest;
  BRAID_ASSIGN(const auto format, json_field<int64_t>(json, "format"));
  if (format != kFormat)
    return invalid_input(cat("format ", format, ", this program reads ", kFormat));
  BRAID_ASSIGN(manifest.step, json_field<int64_t>(json, "step"));
  using Files = std::map<std::string, Json>;
  BRAID_ASSIGN(const auto files, json_field<Files>(json, "files"));
  for (const auto& [name, entry] : files) {
    ManifestEntry& file = manifest.files[name];
    BRAID_ASSIGN(file.size_bytes, json_field<int64_t>(entry, "bytes"));
    BRAID_ASSIGN(file.sha256, json_field<std::string>(entry, "sha256"));
  }
  using Row = std::map<std::string, double>;
  BRAID_ASSIGN(manifest.metrics, json_field<Row>(json, "metrics"));
  return manifest;
}

Status check_file(const std::string& path, const ManifestEntry& expected) {
  const auto file = MappedFile::open(path);
  if (!file.ok()) return damaged(path, path_exists(path) ? "cannot be read" : "is missing");
  const auto size = static_cast<int64_t>(file->size_bytes());
  if (size != expected.size_bytes)
    return damaged(path, cat("has ", size, " bytes, the manifest says ", expected.size_bytes));
  if (sha256_hex(file->text()) != expected.sha256)
    return damaged(path, "its content does not match the SHA-256 in the manifest");
  return ok_status();
}

}  // namespace

Status write_manifest(const std::string& folder, int64_t step,
                      const std::vector<std::string>& files,
                      const std::map<std::string, double>& metrics) {
  Manifest manifest{step, {}, metrics};
  for (const std::string& name : files) {
    BRAID_ASSIGN(const MappedFile file, MappedFile::open(join_path(folder, name)));
    manifest.files[name] = {static_cast<int64_t>(file.size_bytes()), sha256_hex(file.text())};
  }
  Json json = manifest_json(manifest);
  json["sha256"] = sha256_hex(json.dump());
  return write_file_atomic(join_path(folder, kManifestFile), json.dump(2) + "\n");
}

Result<Manifest> read_manifest(const std::string& folder) {
  const std::string path = join_path(folder, kManifestFile);
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
  return manifest;
}

Status check_files(const std::string& folder, const Manifest& manifest) {
  for (const auto& [name, entry] : manifest.files)
    BRAID_TRY(check_file(join_path(folder, name), entry));
  return ok_status();
}

}  // namespace braid::inline checkpoint
