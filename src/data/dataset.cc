#include "data/dataset.h"

#include <zlib.h>
#include <utility>

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "base/rng.h"
#include "base/text.h"
#include "data/plain_row.h"
#include "data/record.h"
#include "data/task.h"
#include "host/hub_cache.h"
#include "host/machine.h"
#include "host/progress.h"
#include "host/sha256.h"
#include "host/workers.h"

namespace braid::inline data {
namespace {

constexpr uint64_t kShuffleStream = 0x5af1;

// A pseudo-random permutation of 0 .. n-1: a Feistel network on the next power of four, walked
// until it lands inside (cycle walking; Black & Rogaway, 2002). Backwards it is its own inverse
// with the rounds in the other order.
class Permutation {
 public:
  Permutation(int64_t count, uint64_t seed) : count_(static_cast<uint64_t>(count)), seed_(seed) {
    while ((uint64_t{1} << (2 * half_bits_)) < count_) ++half_bits_;
    mask_ = (uint64_t{1} << half_bits_) - 1;
  }

  int64_t at(int64_t index) const {
    auto value = static_cast<uint64_t>(index);
    do {
      uint64_t left = value >> half_bits_, right = value & mask_;
      for (uint64_t round = 0; round < kRounds; ++round) {
        const uint64_t next = left ^ mixed(round, right);
        left = right;
        right = next;
      }
      value = (left << half_bits_) | right;
    } while (value >= count_);
    return static_cast<int64_t>(value);
  }

  // The index whose at() is `place`.
  int64_t index_of(int64_t place) const {
    auto value = static_cast<uint64_t>(place);
    do {
      uint64_t left = value >> half_bits_, right = value & mask_;
      for (uint64_t round = kRounds; round > 0; --round) {
        const uint64_t before = right ^ mixed(round - 1, left);
        right = left;
        left = before;
      }
      value = (left << half_bits_) | right;
    } while (value >= count_);
    return static_cast<int64_t>(value);
  }

 private:
  static constexpr uint64_t kRounds = 4;
  uint64_t mixed(uint64_t round, uint64_t half) const {
    return random_u64(seed_, kShuffleStream + round, half) & mask_;
  }

  uint64_t count_, seed_, mask_ = 0;
  int half_bits_ = 1;
};

uint32_t checksum(std::string_view line) {
  return static_cast<uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(line.data()), line.size()));
}

// Keeps the last tokens of a prompt that is too long.
void truncate_left(std::vector<int32_t>& ids, int64_t limit) {
  const auto length = static_cast<int64_t>(ids.size());
  if (length > limit) ids.erase(ids.begin(), ids.begin() + (length - limit));
}

void add_ids(const std::vector<int32_t>& ids, Sha256& sum) {
  const auto count = static_cast<int64_t>(ids.size());
  sum.add({reinterpret_cast<const char*>(&count), sizeof count});
  sum.add({reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int32_t)});
}

void note_length(const std::vector<int32_t>& ids, bool first, DataLengths& lengths) {
  const auto length = static_cast<int64_t>(ids.size());
  lengths.least = first ? length : std::min(lengths.least, length);
  lengths.most = std::max(lengths.most, length);
  lengths.total += length;
}

// Lines that are made records at a time.
constexpr size_t kBatchLines = 4096, kBatchBytes = size_t{1} << 20;

}  // namespace

// The one pass over all lines: records are made on all cores, and taken over in order.
class DataSetBuilder {
 public:
  DataSetBuilder(DataNeed need, const Tokenizer* tokenizer, const DataConfig& config,
                 const LoadingOptions& options)
      : options_(options) {
    data_.need_ = need;
    if (tokenizer != nullptr) data_.tokenizer_ = *tokenizer;
    data_.config_ = config;
    data_.check_ = options.check;
  }

  Result<DataSet> build(RowFiles rows) {
    const auto take = [&](std::string_view line, int64_t place, const std::string& where) {
      line = trim(line);
      if (line.empty()) return ok_status();
      if (only_places_) {
        ++data_.lines_;
        add_place(line, place);
        return ok_status();
      }
      batch_.push_back({std::string(line), place, where, {}, {}});
      batch_bytes_ += line.size();
      const bool full = batch_.size() == kBatchLines || batch_bytes_ >= kBatchBytes;
      if (!full) return ok_status();
      BRAID_TRY(take_batch());
      // A row that is left out would shift all that follow.
      const bool may_leave_out = data_.config_.overlong == "drop" || data_.unwanted_ > 0 ||
                                 data_.need_ == DataNeed::kLabelled;
      only_places_ = !may_leave_out && seconds_so_far() > options_.check_s;
      if (only_places_) data_.checked_ = data_.size();
      return ok_status();
    };
    const Status read = rows.for_each(take);
    BRAID_TRY(take_batch());
    BRAID_TRY(read);
    if (data_.places_.empty()) return no_usable_line(rows.name());
    data_.places_.shrink_to_fit();
    data_.checks_.shrink_to_fit();
    if (only_places_ && data_.checked_ < data_.size()) {
      data_.open_sum_ = std::make_shared<Sha256>(std::move(sum_));
    } else {
      data_.checked_ = data_.size();
      data_.sha256_ = sum_.hex();
    }
    data_.rows_ = std::move(rows);
    return std::move(data_);
  }

 private:
  struct Line {
    std::string text;
    int64_t place = 0;
    std::string where;  // for messages
    Status made;
    DataRecord record;  // where made is ok
  };

  Status take_batch() {
    std::vector<Line> lines;
    lines.swap(batch_);
    batch_bytes_ = 0;
    const Status made = for_each_on_workers(lines.size(), cores_, [&](size_t, size_t i) {
      lines[i].made = make(lines[i]);
      return ok_status();
    });
    BRAID_TRY(made);
    for (Line& line : lines) BRAID_TRY(add(line));
    note_progress();
    return ok_status();
  }

  double seconds_so_far() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

  void add_place(std::string_view line, int64_t place) {
    data_.places_.push_back(place);
    data_.checks_.push_back(checksum(line));
  }

  Status no_usable_line(const std::string& name) const {
    if (data_.unwanted_ == 0) return invalid_input(cat(name, ": no usable line"));
    return invalid_input(cat(name, ": no usable line; the label of ", data_.unwanted_,
                             " is false, so their completions are not learnt"));
  }

  Status make(Line& line) const {
    BRAID_ASSIGN(line.record, data_.parse(line.text, line.where));
    return ok_status();
  }

  Status add(Line& line) {
    BRAID_TRY(line.made);
    DataRecord& record = line.record;
    if (++data_.lines_ == 1) BRAID_TRY(describe(line));
    DataSet::add_to_sum(line.text, record, sum_);
    BRAID_ASSIGN(const bool usable, fit(record, line.where));
    if (!usable) return ok_status();
    if (record.unwanted && data_.need_ != DataNeed::kLabelled) {
      ++data_.unwanted_;
      return ok_status();
    }
    if (data_.check_) BRAID_TRY(data_.check_(record).at(line.where));
    if (options_.visit) options_.visit(record);
    if (const std::string odd = data_.forms_.note(record, line.where); !odd.empty())
      log_warning(odd);
    if (data_.need_ != DataNeed::kLabelled || record.rejected_ids.empty()) {
      add_row(record, line);
      return ok_status();
    }
    // Of a pair both responses are rows.
    const std::vector<int32_t> rejected = std::exchange(record.rejected_ids, {});
    add_row(record, line);
    record.response_ids = rejected;
    add_row(record, line);
    return ok_status();
  }

  void add_row(const DataRecord& record, const Line& line) {
    ++data_.formats_[static_cast<size_t>(record.format)];
    const bool first = data_.places_.empty();
    note_length(record.prompt_ids, first, data_.prompt_lengths_);
    note_length(record.response_ids, first, data_.response_lengths_);
    note_length(record.rejected_ids, first, data_.rejected_lengths_);
    add_place(line.text, line.place);
  }

  Status describe(const Line& line) {
    BRAID_ASSIGN(OrderedJson json, parse_ordered_json(line.text, line.where));
    BRAID_ASSIGN(const PlainRow row, plain_row(std::move(json), data_.need_, data_.config_));
    data_.description_ = row.description();
    return ok_status();
  }

  // What data.overlong wants of a prompt that is too long; false: the line is left out.
  Result<bool> fit(DataRecord& record, const std::string& place) {
    const DataConfig& config = data_.config_;
    if (static_cast<int64_t>(record.prompt_ids.size()) <= config.max_prompt_length) return true;
    BRAID_TRY(data_.check_length(record).at(place));
    if (config.overlong == "drop") {
      ++data_.dropped_;
      return false;
    }
    truncate_left(record.prompt_ids, config.max_prompt_length);
    ++data_.truncated_;
    return true;
  }

  DataSet data_;
  const LoadingOptions& options_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  bool only_places_ = false;  // the rest is not checked
  Sha256 sum_;
  std::vector<Line> batch_;
  size_t batch_bytes_ = 0;
  const size_t cores_ = static_cast<size_t>(std::max<int64_t>(1, processor().cores));
};

int64_t DataSet::held_bytes() const {
  const size_t index = places_.capacity() * sizeof(int64_t) + checks_.capacity() * sizeof(uint32_t);
  return static_cast<int64_t>(index) + rows_.held_bytes();
}

Result<DataRecord> DataSet::parse(std::string_view line, const std::string& place) const {
  BRAID_ASSIGN(OrderedJson json, parse_ordered_json(line, place));
  return make_record(std::move(json), need_, tokenizer_ ? &*tokenizer_ : nullptr, config_)
      .at(place);
}

void DataSet::add_to_sum(std::string_view line, const DataRecord& record, Sha256& sum) {
  sum.add(line);
  for (const auto* ids : {&record.prompt_ids, &record.response_ids, &record.rejected_ids})
    add_ids(*ids, sum);
  sum.add({reinterpret_cast<const char*>(record.learned.data()), record.learned.size()});
}

Status DataSet::check_length(const DataRecord& record) const {
  const auto length = static_cast<int64_t>(record.prompt_ids.size());
  if (length <= config_.max_prompt_length || config_.overlong != "error") return ok_status();
  return invalid_input(
      cat("the prompt has ", length, " tokens, more than data.max_prompt_length = ",
          config_.max_prompt_length, "; raise it, or set data.overlong to drop or truncate_left"));
}

Result<DataRecord> DataSet::parse_checked(std::string_view line, const std::string& place) const {
  BRAID_ASSIGN(DataRecord record, parse(line, place));
  BRAID_TRY(check_length(record).at(place));
  if (record.unwanted)
    return invalid_input(cat(place,
                             ": its label is false, so it is left out of training; rows that are "
                             "left out have to be known at the start: set data.check_s=0"));
  truncate_left(record.prompt_ids, config_.max_prompt_length);
  if (check_) BRAID_TRY(check_(record).at(place));
  return record;
}

Result<DataRecord> DataSet::record(int64_t index) const {
  BRAID_ASSIGN(const std::string whole, rows_.line_at(places_[index]));
  const std::string_view line = trim(whole);
  if (checksum(line) != checks_[index])
    return Status(Code::kDataLoss, cat(rows_.describe(places_[index]),
                                       ": it was changed since the data was loaded; the "
                                       "data of a run must stay as it is"));
  const auto parsed = [&](const std::string& place) {
    return index < checked_ ? parse(line, place) : parse_checked(line, place);
  };
  auto record = parsed("");
  if (!record.ok()) return parsed(rows_.describe(places_[index]));
  truncate_left(record->prompt_ids, config_.max_prompt_length);
  if (need_ == DataNeed::kLabelled && !record->rejected_ids.empty()) {
    record->unwanted = index > 0 && places_[index - 1] == places_[index];
    if (record->unwanted) record->response_ids = record->rejected_ids;
    record->rejected_ids.clear();
  }
  return record;
}

std::string DataSet::lines_sha256() const {
  return sha256_hex(
      {reinterpret_cast<const char*>(checks_.data()), checks_.size() * sizeof(uint32_t)});
}

int64_t DataSet::index_in_epoch(int64_t place, int64_t epoch) const {
  if (!config_.shuffle) return place;
  const auto seed = static_cast<uint64_t>(config_.seed);
  return Permutation(size(), mix_seed(seed, epoch)).index_of(place);
}

int64_t DataSet::next_position(int64_t index, int64_t begin) const {
  for (int64_t in = epoch(begin);; ++in)
    if (const int64_t found = in * size() + index_in_epoch(index, in); found >= begin) return found;
}

int64_t DataSet::index_at(int64_t position) const {
  const auto seed = static_cast<uint64_t>(config_.seed);
  const int64_t index = position % size();
  if (!config_.shuffle) return index;
  return Permutation(size(), mix_seed(seed, epoch(position))).at(index);
}

Result<DataRecord> DataSet::at(int64_t position) const { return record(index_at(position)); }

Result<DataSet> make_data_set(RowFiles rows, DataNeed need, const Tokenizer* tokenizer,
                              const DataConfig& config, const LoadingOptions& options) {
  return DataSetBuilder(need, tokenizer, config, options).build(std::move(rows));
}

Result<DataSet> load_data_set(const std::string& source, DataNeed need, const Tokenizer* tokenizer,
                              const DataConfig& config, const LoadingOptions& options) {
  if (source.empty())
    return invalid_input(
        "data.train: no data given; name a file (JSON lines, CSV, parquet, Arrow), a folder or "
        "task:NAME");
  if (source.rfind("task:", 0) == 0) {
    BRAID_ASSIGN(std::string text, task_source_text(source, static_cast<uint64_t>(config.seed)));
    return make_data_set(RowFiles::of(LineReader::of_text(std::move(text), source)), need,
                         tokenizer, config, options);
  }
  BRAID_ASSIGN(const std::string path, locate_data(source));
  BRAID_ASSIGN(RowFiles rows, RowFiles::open(path));
  return make_data_set(std::move(rows), need, tokenizer, config, options);
}

}  // namespace braid::inline data
