// Training data as token ids: JSONL files and built-in generated tasks behind one cursor. A DataSet
// is immutable after loading; which record a position means is a pure function of (seed, position),
// so a cursor is one number.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "config/options.h"
#include "data/tokenizer.h"

namespace braid {

// What a file must offer.
enum class DataNeed { kPrompts, kSamples, kPairs };

// One line of data. Prompts have only prompt_ids; samples have the response to learn; pairs have
// both responses.
struct DataRecord {
  std::vector<int32_t> prompt_ids;
  std::vector<int32_t> response_ids;
  std::vector<int32_t> rejected_ids;
  std::string prompt;           // text that the model sees; "" where only ids are given
  Json extra = Json::object();  // every other field of the line, "label" included
};

class DataSet {
 public:
  int64_t size() const { return static_cast<int64_t>(records_.size()); }
  int64_t lines() const { return lines_; }      // read, the dropped ones included
  int64_t dropped() const { return dropped_; }  // as longer than config.max_prompt_length
  int64_t truncated() const { return truncated_; }

  // The usable lines in the order of the file.
  const DataRecord& record(int64_t index) const { return records_[index]; }

  // The record at a position of the endless stream: epochs one after another, each shuffled by its
  // own seed.
  const DataRecord& at(int64_t position) const;
  int64_t epoch(int64_t position) const { return position / size(); }

 private:
  friend Result<DataSet> make_data_set(const std::vector<Json>&, const std::string&, DataNeed,
                                       const Tokenizer*, const DataConfig&);
  std::vector<DataRecord> records_;
  bool shuffle_ = false;
  uint64_t seed_ = 0;
  int64_t lines_ = 0, dropped_ = 0, truncated_ = 0;
};

// Turns parsed lines into records (record.h says what a line may hold). Errors name `where` and the
// line (from 1).
Result<DataSet> make_data_set(const std::vector<Json>& lines, const std::string& where,
                              DataNeed need, const Tokenizer* tokenizer, const DataConfig& config);

// Parses JSONL text, one value per line; a blank line is a discarded value, so that places in the
// result are line numbers. A bad line (invalid UTF-8 included) is an error with its number.
Result<std::vector<Json>> parse_jsonl(std::string_view text, const std::string& where);

// Lines of a built-in task by name, a pure function of (name, count, seed). "sort_digits": prompt
// "sort 3142=", label "1234". "reverse": prompt "reverse abc=", label "cba". "sum_digits": prompt
// "sum 352=", label "10".
Result<std::vector<Json>> task_lines(const std::string& name, int64_t count, uint64_t seed);

// Loads what config.train or config.eval names: a file, or "task:NAME" (4096
// lines), or "task:NAME:COUNT".
Result<DataSet> load_data_set(const std::string& source, DataNeed need, const Tokenizer* tokenizer,
                              const DataConfig& config);

}  // namespace braid
