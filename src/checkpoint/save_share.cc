#include "checkpoint/save_share.h"

#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "base/text.h"
#include "checkpoint/folder_names.h"
#include "checkpoint/manifest.h"
#include "checkpoint/shard_file.h"
#include "checkpoint/writing_folder.h"
#include "host/file.h"
#include "host/sha256.h"
#include "host/staged_folder.h"

namespace braid::inline checkpoint {
namespace {

// Between two looks for shares that are missing.
constexpr auto kLook = std::chrono::milliseconds(2);

// What a rank says of its share. The name is that of no file of a checkpoint.
std::string note_path(const std::string& writing, int64_t rank) {
  return join_path(writing, cat(".share-", rank, ".json"));
}

Result<Json> write_files(const std::string& writing, const SaveRank& self,
                         const CheckpointState& share) {
  Json files = Json::object(), tensors = Json::object();
  for (const auto& [group, slices] : share.tensors) {
    const std::string name = shard_name(group, self);
    BRAID_ASSIGN(const ManifestEntry entry, write_shard(join_path(writing, name), slices));
    files[name] = entry_json(entry);
    tensors[group] = index_of(self.rank, slices);
  }
  return Json{
      {"files", std::move(files)}, {"tensors", std::move(tensors)}, {"numbers", share.numbers}};
}

// The notes of all ranks, once they are there.
Result<std::vector<Json>> read_notes(const std::string& writing, int64_t ranks,
                                     const std::function<bool()>& stopped) {
  std::vector<Json> out;
  while (std::ssize(out) < ranks) {
    const auto rank = std::ssize(out);
    const std::string path = note_path(writing, rank);
    if (!path_exists(path)) {
      if (stopped && stopped())
        return Status(Code::kUnavailable, cat("rank ", rank, " has not written its share"));
      std::this_thread::sleep_for(kLook);
      continue;
    }
    BRAID_ASSIGN(const std::string text, read_file(path));
    BRAID_ASSIGN(Json note, parse_json(text, path));
    if (note.contains("error"))
      return Status(note["code"].get<Code>(), cat(ranks > 1 ? cat("rank ", rank, ": ") : "",
                                                  note["error"].get<std::string>()));
    out.push_back(std::move(note));
    std::filesystem::remove(path);
  }
  return out;
}

Status commit(const std::string& writing, const SavePoint& at, std::vector<Json> notes,
              const std::map<std::string, double>& metrics) {
  Manifest manifest{at.step, {}, metrics};
  auto& tensors = manifest.tensors.emplace();
  Json numbers = Json::object();
  for (Json& note : notes) {
    numbers.update(note["numbers"], true);
    for (const auto& [name, entry] : note["files"].items()) {
      BRAID_ASSIGN(manifest.files[name], manifest_entry(entry));
    }
    for (const auto& [group, index] : note["tensors"].items())
      BRAID_TRY(add_index(index.get<SliceIndex>(), &tensors[group]));
  }
  const std::string text = numbers.dump() + "\n";
  BRAID_TRY(write_file_atomic(join_path(writing, kStateFile), text));
  manifest.files[kStateFile] = {static_cast<int64_t>(text.size()), sha256_hex(text)};
  BRAID_TRY(write_manifest(writing, manifest));
  release_writing(writing);
  return sync_path(writing);
}

}  // namespace

Status prepare_save(const SavePlace& place, const SavePoint& at, int64_t bytes) {
  BRAID_TRY(make_folder(place.folder));
  BRAID_TRY(remove_leftovers(place));
  BRAID_TRY(check_free_space(place.folder, bytes));
  return make_writing(place, at);
}

Status write_share(const SavePlace& place, const SavePoint& at, const SaveRank& self,
                   const CheckpointState& share) {
  const std::string writing = writing_path(place, at);
  const FileHandle held = hold_writing(writing);
  if (!held.is_open())
    return io_error(
        cat(writing, ": is gone; did another job that writes to ", place.folder, " remove it?"));
  const auto note = write_files(writing, self, share);
  const Status& status = note.status();
  const Json said = note.ok() ? *note : Json{{"error", status.message()}, {"code", status.code()}};
  const Status told = write_file_atomic(note_path(writing, self.rank),
                                        said.dump(-1, ' ', false, Json::error_handler_t::replace));
  return status.ok() ? told : status;
}

Result<std::string> commit_save(const SavePlace& place, const SavePoint& at, int64_t ranks,
                                const std::map<std::string, double>& metrics,
                                const std::function<bool()>& stopped) {
  const std::string writing = writing_path(place, at);
  const std::string path = join_path(place.folder, folder_name(at));
  auto notes = read_notes(writing, ranks, stopped);
  Status status = notes.status();
  if (status.ok()) status = commit(writing, at, std::move(notes).value(), metrics);
  if (status.ok()) status = put_in_place(writing, path);
  if (path_exists(writing)) remove_folder(writing);
  if (!status.ok()) return status.at("checkpoint");
  return path;
}

}  // namespace braid::inline checkpoint
