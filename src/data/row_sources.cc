#include "data/row_sources.h"

#include <glob.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "base/json.h"
#include "base/text.h"
#include "host/file.h"

namespace braid::inline data {
namespace {

constexpr const char* kEndings[] = {".jsonl",    ".ndjson",  ".json",   ".parquet",
                                    ".arrow",    ".feather", ".csv",    ".tsv",
                                    ".jsonl.gz", ".json.gz", ".csv.gz", ".tsv.gz"};
constexpr const char* kEndingsText =
    ".jsonl, .json, .csv, .tsv (also .gz), .parquet or .arrow file";
constexpr const char* kNamesOfSplits[] = {"train", "test", "validation", "valid",
                                          "val",   "dev",  "eval"};
// What `datasets` writes beside the rows.
constexpr const char* kDescriptions[] = {"dataset_info.json", "dataset_infos.json",
                                         "dataset_dict.json", "state.json"};

// The ending that says what a file holds; "" for none of rows.
std::string ending_of(const std::string& name) {
  std::string out;
  for (const std::string ending : kEndings)
    if (name.ends_with(ending) && ending.size() > out.size()) out = ending;
  return out;
}

bool is_row_file(const std::string& name) {
  if (name.front() == '.' || (name.starts_with("cache-") && name.ends_with(".arrow"))) return false;
  for (const char* description : kDescriptions)
    if (name == description) return false;
  return !ending_of(name).empty();
}

Result<std::vector<std::string>> files_of_pattern(const std::string& pattern) {
  glob_t found{};
  const int result = ::glob(pattern.c_str(), 0, nullptr, &found);
  const std::unique_ptr<glob_t, void (*)(glob_t*)> owned(&found, ::globfree);
  std::vector<std::string> out;
  if (result == 0)
    for (size_t i = 0; i < found.gl_pathc; ++i)
      if (!is_folder(found.gl_pathv[i])) out.push_back(found.gl_pathv[i]);
  if (out.empty()) return not_found(cat(pattern, ": no file matches"));
  return out;
}

// The split that a file's name tells: a word between its '-', '_' and '.'.
std::string split_of(const std::string& name) {
  std::string words = lowered(name);
  for (char& c : words)
    if (c == '_' || c == '.') c = '-';
  for (const std::string& word : split(words, '-'))
    for (const char* known : kNamesOfSplits)
      if (word == known) return word;
  return "";
}

Status check_one_split(const std::string& folder, const std::vector<std::string>& names) {
  std::map<std::string, std::string> splits;  // and a file of each
  for (const std::string& name : names) splits.emplace(split_of(name), name);
  if (splits.size() < 2) return ok_status();
  std::vector<std::string> words;
  for (const auto& [word, name] : splits) words.push_back(word.empty() ? "others" : word);
  const std::string& last = splits.rbegin()->first;
  const bool first_word = lowered(splits.rbegin()->second).starts_with(last);
  return invalid_input(cat(folder, ": the folder holds files of several splits (",
                           join(words, ", "), "); say which, as in ",
                           join_path(folder, cat(first_word ? "" : "*", last, "*"))));
}

// Two forms of one file would be trained on twice.
Status check_one_form(const std::string& folder, const std::vector<std::string>& names) {
  std::map<std::string, std::string> stems;
  for (const std::string& name : names) {
    const std::string ending = ending_of(name);
    const auto [other, added] = stems.emplace(name.substr(0, name.size() - ending.size()), name);
    if (!added)
      return invalid_input(cat(folder, ": ", other->second, " and ", name,
                               " look like the same rows in two forms; name the files that are "
                               "meant, or a pattern such as ",
                               join_path(folder, "*" + ending)));
  }
  return ok_status();
}

std::string content_text(const std::vector<std::string>& names) {
  constexpr size_t kMost = 5;
  const std::vector<std::string> first(names.begin(),
                                       names.begin() + std::min(names.size(), kMost));
  return names.empty() ? "it is empty"
                       : cat("it holds ", join(first, ", "), names.size() > kMost ? ", ..." : "");
}

Status check_no_model(const std::string& folder) {
  const auto holds = [&](const char* name) { return path_exists(join_path(folder, name)); };
  if (holds("manifest.json") && holds("state.json"))
    return invalid_input(cat(folder, " is a checkpoint of a run, not data"));
  if (holds("config.json") && (holds("tokenizer.json") || holds("tokenizer_config.json") ||
                               holds("generation_config.json") || holds("model.safetensors")))
    return invalid_input(cat(folder, " is a model's folder, not data"));
  return ok_status();
}

Result<std::vector<std::string>> files_of_plain_folder(const std::string& folder) {
  BRAID_TRY(check_no_model(folder));
  BRAID_ASSIGN(const std::vector<std::string> all, list_folder(folder));
  std::vector<std::string> names, paths;
  for (const std::string& name : all)
    if (is_row_file(name) && !is_folder(join_path(folder, name))) names.push_back(name);
  if (names.empty())
    return not_found(cat(folder, ": the folder holds no ", kEndingsText, "; ", content_text(all)));
  BRAID_TRY(check_one_split(folder, names));
  BRAID_TRY(check_one_form(folder, names));
  for (const std::string& name : names) paths.push_back(join_path(folder, name));
  return paths;
}

// A Dataset of the `datasets` library, as save_to_disk() writes it: state.json lists its files.
Result<std::vector<std::string>> files_of_saved_set(const std::string& folder) {
  const std::string file = join_path(folder, "state.json");
  BRAID_ASSIGN(const std::string text, read_file(file));
  BRAID_ASSIGN(const Json state, parse_json(text, file));
  const auto indices = state.find("_indices_data_files");
  if (indices != state.end() && !indices->is_null() && !indices->empty())
    return invalid_input(cat(folder,
                             ": the data set is a choice of rows (_indices_data_files); write it "
                             "anew with flatten_indices().save_to_disk()"));
  const auto listed = state.find("_data_files");
  if (listed == state.end() || !listed->is_array() || listed->empty())
    return invalid_input(cat(file, ": '_data_files' does not list the files of the data set"));
  std::vector<std::string> out;
  for (const Json& entry : *listed) {
    BRAID_ASSIGN(const std::string name, json_field<std::string>(entry, "filename").at(file));
    out.push_back(join_path(folder, name));
    if (!path_exists(out.back()))
      return not_found(cat(out.back(), ": the file is missing; ", file, " lists it"));
  }
  return out;
}

// A DatasetDict: a folder for each split.
Result<std::string> only_split(const std::string& folder) {
  const std::string file = join_path(folder, "dataset_dict.json");
  BRAID_ASSIGN(const std::string text, read_file(file));
  BRAID_ASSIGN(const Json dict, parse_json(text, file));
  BRAID_ASSIGN(const auto splits, json_field<std::vector<std::string>>(dict, "splits").at(file));
  if (splits.empty()) return invalid_input(cat(file, ": lists no split"));
  if (splits.size() == 1) return join_path(folder, splits[0]);
  return invalid_input(cat(folder, ": the data set has several splits (", join(splits, ", "),
                           "); say which, as in ", join_path(folder, splits[0])));
}

Result<std::vector<std::string>> files_of_folder(const std::string& folder) {
  const auto holds = [&](const char* name) { return path_exists(join_path(folder, name)); };
  if (holds("state.json") && holds("dataset_info.json")) return files_of_saved_set(folder);
  if (!holds("dataset_dict.json")) return files_of_plain_folder(folder);
  BRAID_ASSIGN(const std::string split, only_split(folder));
  return files_of_saved_set(split);
}

}  // namespace

Result<std::vector<std::string>> paths_of_rows(const std::string& source) {
  if (is_folder(source)) return files_of_folder(source);
  const bool wild =
      source != "-" && !path_exists(source) && source.find_first_of("*?[") != std::string::npos;
  if (wild) return files_of_pattern(source);
  return std::vector<std::string>{source};
}

}  // namespace braid::inline data
