#include "host/hub_cache.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <vector>

#include "base/text.h"
#include "host/file.h"

namespace braid::inline host {
namespace {

struct HubKind {
  const char* folder_prefix;    // of its folders in the cache
  const char* what;             // in messages
  const char* download_option;  // of `hf download`
};
constexpr HubKind kHubModel{"models--", "model folder", ""};
constexpr HubKind kHubDataSet{"datasets--", "file, folder or data set", " --repo-type dataset"};

// "Org/Name" or "Name", the revision, and the path behind it.
struct HubName {
  std::string repository, revision, path;
};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// As the hub's rule for names: letters, digits, '-', '_' and '.', not at the ends.
bool is_hub_word(std::string_view text) {
  const auto good = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
  };
  return !text.empty() && text.size() <= 96 && text.front() != '.' && text.front() != '-' &&
         text.back() != '.' && std::all_of(text.begin(), text.end(), good);
}

// Of the first `words` words; the rest is the path.
std::optional<HubName> hub_name(const std::string& text, size_t words) {
  const std::vector<std::string> parts = split(text, '/');
  if (parts.size() < words) return std::nullopt;
  HubName out;
  std::string last = parts[words - 1];
  const size_t at = last.find('@');
  if (at != std::string::npos) out.revision = last.substr(at + 1);
  last = last.substr(0, at);
  for (size_t i = 0; i < words; ++i) {
    const std::string& word = i + 1 == words ? last : parts[i];
    if (!is_hub_word(word)) return std::nullopt;
    out.repository += (i > 0 ? "/" : "") + word;
  }
  out.path = join({parts.begin() + static_cast<int64_t>(words), parts.end()}, "/");
  return out;
}

std::string cache_folder_of(const HubName& name, const HubKind& kind) {
  std::string flat = name.repository;
  if (const size_t slash = flat.find('/'); slash != std::string::npos) flat.replace(slash, 1, "--");
  return join_path(hub_cache_folder(), kind.folder_prefix + flat);
}

std::string download_command(const HubName& name, const HubKind& kind) {
  return cat("hf download ", name.repository, kind.download_option,
             name.revision.empty() ? "" : " --revision " + name.revision);
}

// The snapshots whose name begins with the revision: commits may be cut short.
Result<std::string> snapshot_of_commit(const HubName& name, const HubKind& kind,
                                       const std::string& snapshots) {
  std::vector<std::string> found;
  if (is_folder(snapshots)) {
    BRAID_ASSIGN(const std::vector<std::string> all, list_folder(snapshots));
    for (const std::string& commit : all)
      if (commit.rfind(name.revision, 0) == 0) found.push_back(commit);
  }
  if (found.size() == 1) return join_path(snapshots, found[0]);
  if (!found.empty())
    return invalid_input(cat(name.repository, ": the Hugging Face cache holds several revisions; ",
                             "say which as ", name.repository, "@REVISION: ", join(found, ", ")));
  return not_found(cat(name.repository, ": the Hugging Face cache has no revision '",
                       name.revision.empty() ? "main" : name.revision, "' (", snapshots,
                       "); fetch it: ", download_command(name, kind)));
}

// refs/REVISION holds the commit of a branch or a tag.
Result<std::string> snapshot_folder(const HubName& name, const HubKind& kind) {
  const std::string folder = cache_folder_of(name, kind);
  const std::string snapshots = join_path(folder, "snapshots");
  const std::string revision = name.revision.empty() ? "main" : name.revision;
  const std::string ref = join_path(join_path(folder, "refs"), revision);
  if (path_exists(ref) && !is_folder(ref)) {
    BRAID_ASSIGN(const std::string commit, read_file(ref));
    const std::string snapshot = join_path(snapshots, trim(commit));
    if (is_folder(snapshot)) return snapshot;
  }
  return snapshot_of_commit(name, kind, snapshots);
}

// "; did you mean FOLDER/NAME?" of a path whose folder is here and has a name like it; else "".
std::string nearest_path(const std::string& text) {
  const std::string folder = parent_folder(text);
  const Result<std::vector<std::string>> names = list_folder(folder);
  if (!names.ok() || text.size() <= folder.size()) return "";
  const size_t slash = text.find_last_of('/');
  const std::string near =
      nearest_name(text.substr(slash == std::string::npos ? 0 : slash + 1), *names);
  return near.empty() ? "" : cat("; did you mean ", join_path(folder, near), "?");
}

// The models of a run, or of its export: children of the folder that are models.
std::vector<std::string> models_below(const std::string& folder) {
  std::vector<std::string> out;
  for (const std::string& above : {folder, join_path(folder, "export")}) {
    const Result<std::vector<std::string>> names = list_folder(above);
    for (size_t i = 0; names.ok() && i < names->size(); ++i)
      if (path_exists(join_path(join_path(above, (*names)[i]), "config.json")))
        out.push_back(join_path(above, (*names)[i]));
  }
  return out;
}

Status nowhere(const std::string& text, const HubKind& kind, const std::optional<HubName>& name) {
  const std::string near = nearest_path(text);
  const bool exported = text.find("/export/") != std::string::npos;
  if (!name)
    return not_found(cat(text, ": there is no such ", kind.what, near,
                         near.empty() && exported
                             ? "; it is what a run leaves at its end: train that one first"
                             : ""));
  return not_found(cat(text, ": there is no such ", kind.what,
                       " here, and none of this name in the Hugging Face cache (",
                       hub_cache_folder(), "); fetch it: ", download_command(*name, kind)));
}

// "https" of "https://...": nothing is fetched, so an address is an error that says what to do.
Status check_no_address(const std::string& text, const HubKind& kind) {
  const size_t colon = text.find("://");
  if (colon == std::string::npos || colon == 0) return ok_status();
  std::string name = text.substr(colon + 3);
  const std::string scheme = text.substr(0, colon);
  if (scheme == "file") return invalid_input(cat(text, ": write the path alone: ", name));
  bool hub = scheme == "hf";
  for (const char* host : {"huggingface.co/", "www.huggingface.co/"})
    if (name.starts_with(host)) hub = true, name.erase(0, std::string(host).size());
  if (name.starts_with("datasets/")) name.erase(0, std::string("datasets/").size());
  const std::optional<HubName> found = hub ? hub_name(name, 2) : std::nullopt;
  if (found)
    return invalid_input(cat(text, ": an address is not read; download it first with '",
                             download_command(*found, kind), "' and write ", found->repository));
  const char* tool = scheme == "s3"                          ? " (aws s3 cp)"
                     : scheme == "gs"                        ? " (gcloud storage cp)"
                     : scheme == "http" || scheme == "https" ? " (curl -LO)"
                                                             : "";
  return invalid_input(
      cat(text, ": an address is not read; download it first", tool, " and write the path"));
}

bool ends_like_data(const std::string& text) {
  for (const char* ending :
       {".jsonl", ".json", ".gz", ".parquet", ".csv", ".tsv", ".txt", ".arrow", ".feather"})
    if (text.ends_with(ending)) return true;
  return false;
}

}  // namespace

std::string hub_cache_folder() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (const std::string folder = variable(name); !folder.empty()) return folder;
  std::string home = variable("HF_HOME");
  if (home.empty()) {
    const std::string cache = variable("XDG_CACHE_HOME");
    home = join_path(cache.empty() ? join_path(variable("HOME"), ".cache") : cache, "huggingface");
  }
  return join_path(home, "hub");
}

Result<std::string> locate_model(const std::string& text) {
  if (!path_exists(text)) BRAID_TRY(check_no_address(text, kHubModel));
  const auto holds = [&](const char* name) { return path_exists(join_path(text, name)); };
  if (holds("manifest.json") && holds("state.json") && !holds("config.json"))
    return invalid_input(cat(text,
                             " is a checkpoint of a run, not a model; make one of it: "
                             "braid export ",
                             text, " OUT"));
  if (is_folder(text) && !holds("config.json") && !holds("adapter_config.json"))
    if (const auto below = models_below(text); !below.empty())
      return invalid_input(
          cat(text, ": is no model's folder; write which one of it: ", join(below, ", ")));
  if (path_exists(text)) return text;
  const size_t words = text.find('/') == std::string::npos ? 1 : 2;
  std::optional<HubName> name = hub_name(text, words);
  if (name && !name->path.empty()) name.reset();
  if (name && is_folder(cache_folder_of(*name, kHubModel)))
    return snapshot_folder(*name, kHubModel);
  return nowhere(text, kHubModel, name);
}

Result<std::string> locate_data(const std::string& source) {
  if (source == "-" || source.rfind("task:", 0) == 0 || path_exists(source)) return source;
  BRAID_TRY(check_no_address(source, kHubDataSet));
  const std::optional<HubName> name = hub_name(source, 2);
  if (!name || !is_folder(cache_folder_of(*name, kHubDataSet))) {
    const bool wild = source.find_first_of("*?[") != std::string::npos;
    if (wild) return source;
    const bool file =
        !name || (name->path.empty() ? ends_like_data(source) : is_folder(parent_folder(source)));
    return nowhere(source, kHubDataSet, file ? std::nullopt : name);
  }
  BRAID_ASSIGN(const std::string snapshot, snapshot_folder(*name, kHubDataSet));
  return name->path.empty() ? snapshot : join_path(snapshot, name->path);
}

}  // namespace braid::inline host
