// rollouts.jsonl: what was generated and what it was worth, a line per sample, written by
// rollout.record and read back by rollout.replay. Numbers survive bit for bit. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "base/status.h"
#include "host/file.h"

namespace braid::inline samples {

inline constexpr const char* kRolloutFile = "rollouts.jsonl";  // in the run's folder

struct RolloutRow {
  int64_t step = 0;
  SampleId sample;
  std::vector<int32_t> prompt_ids;
  std::string responses;  // the field of these, where it is not response_ids, as ReMax's greedy_ids
  std::vector<int32_t> response_ids;
  std::vector<float> logprobs;   // of the response tokens, under the sampler; none of other fields
  bool truncated = false;        // "finish": "length" instead of "stop"
  std::optional<double> reward;  // that training used ("rewards"); null: dropped by on_error
  double raw_reward = 0;         // before clipping and penalties; absent = the same
  std::map<std::string, double> reward_values;  // of each reward of the list, NaN (null) for none
  std::string prompt;                           // for people; not read back
  Json extra = Json::object();                  // further fields of the data's line; not read back
};

Json rollout_json(const RolloutRow& row);

// Reads step, sample, prompt_ids, response_ids, logprobs, finish and rewards, and what else is
// there; errors name the key.
Result<RolloutRow> parse_rollout(const Json& line);

// Appends rows to a file; on opening, drops the rows from `first_step` on, which a continued run
// writes again, and a line that an interruption cut short.
class RolloutRecorder {
 public:
  static Result<RolloutRecorder> open(const std::string& path, int64_t first_step);
  Status append(const std::vector<RolloutRow>& rows);

 private:
  explicit RolloutRecorder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// A recorded file, indexed by step and sample; rows are parsed again when asked for, so memory does
// not grow with the file.
class RolloutReplay {
 public:
  // Checks every line; errors name the file and the line.
  static Result<RolloutReplay> open(const std::string& path);

  // The row of a sample; an error if the file has none, or if its prompt is not `prompt_ids`.
  // `responses`: RolloutRow::responses.
  Result<RolloutRow> find(int64_t step, SampleId sample, const std::string& responses,
                          const std::vector<int32_t>& prompt_ids) const;

 private:
  struct Place {
    size_t begin = 0, size = 0;
    int64_t line = 0;
  };
  explicit RolloutReplay(std::string path, MappedFile file)
      : path_(std::move(path)), file_(std::move(file)) {}
  Status index_line(const Place& place);
  Result<RolloutRow> read(const Place& place) const;

  std::string path_;
  MappedFile file_;
  std::map<std::tuple<int64_t, int64_t, std::string>, Place> places_;  // step, sample, responses
};

}  // namespace braid::inline samples
