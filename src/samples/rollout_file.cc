#include "samples/rollout_file.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "base/text.h"

namespace braid::inline samples {
namespace {

// Tokens and log-probs must match, and every number must be one that training can use.
Status check_row(const RolloutRow& row) {
  const bool unsaid = !row.responses.empty() && row.logprobs.empty();
  if (!unsaid && row.logprobs.size() != row.response_ids.size())
    return invalid_input(cat("logprobs has ", row.logprobs.size(), " numbers for ",
                             row.response_ids.size(), " response_ids"));
  if (row.response_ids.empty()) return invalid_input("response_ids is empty");
  const auto finite = [](float value) { return std::isfinite(value); };
  if (!std::all_of(row.logprobs.begin(), row.logprobs.end(), finite))
    return invalid_input("logprobs holds a number that is not finite");
  return ok_status();
}

}  // namespace

Json rollout_json(const RolloutRow& row) {
  Json out = {{"step", row.step}, {"sample", row.sample.value}};
  out["prompt_ids"] = row.prompt_ids;
  if (!row.responses.empty()) out["responses"] = row.responses;
  out["response_ids"] = row.response_ids;
  out["logprobs"] = row.logprobs;
  out["finish"] = row.truncated ? "length" : "stop";
  out["rewards"] = row.reward ? Json(*row.reward) : Json(nullptr);
  out["raw_reward"] = number_or_null(row.raw_reward);
  out["reward_values"] = Json::object();
  for (const auto& [name, value] : row.reward_values)
    out["reward_values"][name] = number_or_null(value);
  if (!row.prompt.empty()) out["prompt"] = row.prompt;
  if (!row.extra.empty()) out["extra"] = row.extra;
  return out;
}

Result<RolloutRow> parse_rollout(const Json& line) {
  if (!line.is_object()) return invalid_input("a line must be a JSON object");
  RolloutRow row;
  BRAID_ASSIGN(row.step, json_field<int64_t>(line, "step"));
  BRAID_ASSIGN(row.sample.value, json_field<int64_t>(line, "sample"));
  BRAID_ASSIGN(row.prompt_ids, json_field<std::vector<int32_t>>(line, "prompt_ids"));
  BRAID_ASSIGN(row.responses, json_field_or(line, "responses", std::string()));
  BRAID_ASSIGN(row.response_ids, json_field<std::vector<int32_t>>(line, "response_ids"));
  BRAID_ASSIGN(row.logprobs, json_field<std::vector<float>>(line, "logprobs"));
  BRAID_ASSIGN(const auto finish, json_field<std::string>(line, "finish"));
  if (finish != "stop" && finish != "length")
    return invalid_input(cat("finish: '", finish, "' is neither stop nor length"));
  row.truncated = finish == "length";
  if (!line.contains("rewards")) return invalid_input("missing key 'rewards'");
  if (!line["rewards"].is_null()) {
    BRAID_ASSIGN(row.reward, json_field<double>(line, "rewards"));
  }
  BRAID_ASSIGN(row.raw_reward, json_field_or<double>(line, "raw_reward", row.reward.value_or(0)));
  const Json values = line.value("reward_values", Json::object());
  for (const auto& [name, value] : values.items())
    row.reward_values[name] = value.is_number() ? value.get<double>() : std::nan("");
  BRAID_TRY(check_row(row));
  return row;
}

Result<RolloutRecorder> RolloutRecorder::open(const std::string& path, int64_t first_step) {
  if (path_exists(path)) {
    BRAID_ASSIGN(const std::string text, read_file(path));
    std::istringstream lines(text);
    std::string line, kept;
    while (std::getline(lines, line)) {
      const auto row = parse_json(line, path);
      if (row.ok() && row->is_object() && row->value("step", first_step) < first_step)
        kept += line + "\n";
    }
    BRAID_TRY(write_file_atomic(path, kept));
  }
  return RolloutRecorder(path);
}

Status RolloutRecorder::append(const std::vector<RolloutRow>& rows) {
  std::string text;
  for (const RolloutRow& row : rows) text += rollout_json(row).dump() + "\n";
  return append_file(path_, text);
}

Result<RolloutReplay> RolloutReplay::open(const std::string& path) {
  BRAID_ASSIGN(MappedFile file, MappedFile::open(path).at("rollout.replay"));
  RolloutReplay replay(path, std::move(file));
  const std::string_view text = replay.file_.text();
  Place place;
  while (place.begin < text.size()) {
    ++place.line;
    const size_t end = std::min(text.find('\n', place.begin), text.size());
    place.size = end - place.begin;
    if (!trim(text.substr(place.begin, place.size)).empty()) BRAID_TRY(replay.index_line(place));
    place.begin = end + 1;
  }
  if (replay.places_.empty()) return invalid_input(cat("rollout.replay: ", path, " has no lines"));
  return replay;
}

Status RolloutReplay::index_line(const Place& place) {
  BRAID_ASSIGN(const RolloutRow row, read(place));
  const auto [found, fresh] =
      places_.emplace(std::tuple(row.step, row.sample.value, row.responses), place);
  if (fresh) return ok_status();
  return invalid_input(cat(path_, ":", place.line, ": sample ", row.sample, " of step ", row.step,
                           " occurs twice, first in line ", found->second.line));
}

Result<RolloutRow> RolloutReplay::read(const Place& place) const {
  const std::string where = cat(path_, ":", place.line);
  BRAID_ASSIGN(const Json line, parse_json(file_.text().substr(place.begin, place.size), where));
  return parse_rollout(line).at(where);
}

Result<RolloutRow> RolloutReplay::find(int64_t step, SampleId sample, const std::string& responses,
                                       const std::vector<int32_t>& prompt_ids) const {
  const auto found = places_.find({step, sample.value, responses});
  if (found == places_.end())
    return invalid_input(cat("rollout.replay: ", path_, " has no sample ", sample, " of step ",
                             step, responses.empty() ? "" : cat(" (", responses, ")"),
                             "; it was recorded with other rollout options or is shorter"));
  BRAID_ASSIGN(RolloutRow row, read(found->second));
  if (row.prompt_ids != prompt_ids)
    return invalid_input(cat(path_, ":", found->second.line, ": prompt_ids of sample ", sample,
                             " are not those of data.train; the file was recorded on other data"));
  return row;
}

}  // namespace braid::inline samples
