// Training data as token ids: files (row_files.h) and built-in generated tasks behind one cursor.
// Rows stay on the disk: loading reads every line once, checks it, unless that takes longer than it
// may (data_check.h does the rest then), and keeps 12 bytes per usable line; a line becomes token
// ids when it is needed. Which record a position means is a pure function of (seed, position), so a
// cursor is one number. Immutable and thread-safe after loading.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "config/options.h"
#include "data/columns.h"
#include "data/row_files.h"
#include "data/row_forms.h"
#include "data/tokenizer/tokenizer.h"
#include "host/sha256.h"

namespace braid::inline data {

// One row of data. Prompts have only prompt_ids; samples have the response to learn; pairs have
// both responses.
struct DataRecord {
  std::vector<int32_t> prompt_ids;
  std::vector<int32_t> response_ids;
  std::vector<int32_t> rejected_ids;
  std::vector<uint8_t> learned;  // [response_ids] 0 where training does not learn; empty: all
  std::string prompt;            // text that the model sees; "" where only ids are given
  OrderedJson conversation;      // messages that became the prompt; null where it is none
  Json extra = Json::object();   // every other column of the row, "label" included
  RowFormat format = RowFormat::kPrompt;
  bool unwanted = false;  // the row says that its completion is a bad one
  double score = 0;       // how good the row says that its response is
};

// Of the usable lines, in tokens.
struct DataLengths {
  int64_t least = 0, most = 0, total = 0;
};

// What the reader of a data set asks of every usable record, beside being readable. Thread-safe.
using RecordCheck = std::function<Status(const DataRecord&)>;

class DataSet {
 public:
  int64_t size() const { return static_cast<int64_t>(places_.size()); }
  int64_t lines() const { return lines_; }      // read, the dropped ones included
  int64_t dropped() const { return dropped_; }  // as longer than config.max_prompt_length
  int64_t truncated() const { return truncated_; }
  int64_t unwanted() const { return unwanted_; }  // left out: their completions are bad ones
  // What the first row was recognised as, and why.
  const std::string& description() const { return description_; }
  // Usable rows of a format.
  int64_t rows_of(RowFormat format) const { return formats_[static_cast<size_t>(format)]; }
  const DataLengths& prompt_lengths() const { return prompt_lengths_; }
  const DataLengths& response_lengths() const { return response_lengths_; }
  const DataLengths& rejected_lengths() const { return rejected_lengths_; }

  // Usable rows from the beginning that were checked; of the others description() and the counts
  // know nothing.
  int64_t checked() const { return checked_; }

  // SHA-256 over all lines (without line ends and surrounding blanks) and the ids that they became;
  // "" where not all are checked.
  const std::string& sha256() const { return sha256_; }
  // SHA-256 over the checksums of all usable lines.
  std::string lines_sha256() const;
  // Memory that grows with the data: the index, and the text where it is not a file's.
  int64_t held_bytes() const;

  // The usable lines in the order of the file. A line that is not the one that was read at the
  // beginning is an error that names its place, and so is one that loading did not check and that
  // is bad.
  Result<DataRecord> record(int64_t index) const;

  // The record at a position of the endless stream: epochs one after another, each shuffled by its
  // own seed.
  Result<DataRecord> at(int64_t position) const;
  int64_t epoch(int64_t position) const { return position / size(); }
  // The record that it is, in the order of the data.
  int64_t index_at(int64_t position) const;
  // The first position from `begin` on that means the record of this index.
  int64_t next_position(int64_t index, int64_t begin) const;

 private:
  friend class DataSetBuilder;
  friend class DataCheck;
  // A line before data.overlong. Errors begin with the place.
  Result<DataRecord> parse(std::string_view line, const std::string& place) const;
  // What loading asks of a line where it checks it.
  Result<DataRecord> parse_checked(std::string_view line, const std::string& place) const;
  static void add_to_sum(std::string_view line, const DataRecord& record, Sha256& sum);
  // The prompt of the record is longer than data.overlong lets pass.
  Status check_length(const DataRecord& record) const;
  int64_t index_in_epoch(int64_t place, int64_t epoch) const;

  RowFiles rows_;
  DataNeed need_ = DataNeed::kPrompts;
  std::optional<Tokenizer> tokenizer_;
  DataConfig config_;
  std::vector<int64_t> places_;   // of the usable lines, bytes
  std::vector<uint32_t> checks_;  // CRC-32 of each
  int64_t lines_ = 0, dropped_ = 0, truncated_ = 0, unwanted_ = 0;
  std::string description_;
  std::array<int64_t, kRowFormats> formats_{};
  RowForms forms_;  // of the checked rows
  DataLengths prompt_lengths_, response_lengths_, rejected_lengths_;
  std::string sha256_;
  int64_t checked_ = 0;
  RecordCheck check_;                 // for the rows from checked_ on
  std::shared_ptr<Sha256> open_sum_;  // of those before them, for the one DataCheck
};

// How a data set is loaded.
struct LoadingOptions {
  RecordCheck check;
  // Called with every usable record that is checked while loading, in order.
  std::function<void(const DataRecord&)> visit;
  // Seconds after which the rows that follow are no longer checked. Where rows may be left out, all
  // are: how many are usable decides their order.
  double check_s = std::numeric_limits<double>::infinity();
};

// Reads and checks every line (record.h says what one may hold). Errors name the file and the
// line (from 1); invalid UTF-8 and a text without a usable line are errors too. Blank lines are
// skipped.
Result<DataSet> make_data_set(RowFiles rows, DataNeed need, const Tokenizer* tokenizer,
                              const DataConfig& config, const LoadingOptions& options = {});

// Loads what config.train or config.eval names: a file, a folder, a pattern or a data set of the
// Hugging Face cache (row_files.h, host/hub_cache.h), or "task:NAME" (4096 lines), or
// "task:NAME:COUNT".
Result<DataSet> load_data_set(const std::string& source, DataNeed need, const Tokenizer* tokenizer,
                              const DataConfig& config, const LoadingOptions& options = {});

}  // namespace braid::inline data
