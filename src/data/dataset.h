// Training data as token ids: JSONL files and built-in generated tasks behind one cursor. A file
// stays on the disk: loading reads every line once, which checks them all, and keeps 12 bytes per
// usable line; a line becomes token ids when it is needed. Which record a position means is a pure
// function of (seed, position), so a cursor is one number. Immutable and thread-safe after loading.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "config/options.h"
#include "data/tokenizer/tokenizer.h"
#include "host/line_reader.h"

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
  Json messages;                // the prompt as a conversation; null where it is text or ids
  Json extra = Json::object();  // every other field of the line, "label" included
};

// Of the usable lines, in tokens.
struct DataLengths {
  int64_t least = 0, most = 0, total = 0;
};

class DataSet {
 public:
  int64_t size() const { return static_cast<int64_t>(places_.size()); }
  int64_t lines() const { return lines_; }      // read, the dropped ones included
  int64_t dropped() const { return dropped_; }  // as longer than config.max_prompt_length
  int64_t truncated() const { return truncated_; }
  const DataLengths& prompt_lengths() const { return prompt_lengths_; }
  const DataLengths& response_lengths() const { return response_lengths_; }
  const DataLengths& rejected_lengths() const { return rejected_lengths_; }

  // SHA-256 over all lines (without line ends and surrounding blanks) and the ids that they became.
  const std::string& sha256() const { return sha256_; }
  // Memory that grows with the data: the index, and the text where it is not a file's.
  int64_t held_bytes() const;

  // The usable lines in the order of the file. A line that is not the one that was checked at the
  // beginning is an error that names the file.
  Result<DataRecord> record(int64_t index) const;

  // The record at a position of the endless stream: epochs one after another, each shuffled by its
  // own seed.
  Result<DataRecord> at(int64_t position) const;
  int64_t epoch(int64_t position) const { return position / size(); }

 private:
  friend class DataSetBuilder;
  // A line before data.overlong. Errors begin with the place.
  Result<DataRecord> parse(std::string_view line, const std::string& place) const;

  LineReader reader_;
  DataNeed need_ = DataNeed::kPrompts;
  std::optional<Tokenizer> tokenizer_;
  DataConfig config_;
  std::vector<int64_t> places_;   // of the usable lines, bytes
  std::vector<uint32_t> checks_;  // CRC-32 of each
  int64_t lines_ = 0, dropped_ = 0, truncated_ = 0;
  DataLengths prompt_lengths_, response_lengths_, rejected_lengths_;
  std::string sha256_;
};

// Reads and checks every line (record.h says what one may hold). Errors name reader.name() and the
// line (from 1); invalid UTF-8 and a text without a usable line are errors too. Blank lines are
// skipped.
Result<DataSet> make_data_set(LineReader reader, DataNeed need, const Tokenizer* tokenizer,
                              const DataConfig& config);

// Loads what config.train or config.eval names: a file, or "task:NAME" (4096
// lines), or "task:NAME:COUNT".
Result<DataSet> load_data_set(const std::string& source, DataNeed need, const Tokenizer* tokenizer,
                              const DataConfig& config);

}  // namespace braid
