#include "data/dataset.h"

#include <zlib.h>

#include <algorithm>

#include "base/rng.h"
#include "base/text.h"
#include "data/record.h"
#include "data/task.h"
#include "host/hub_cache.h"
#include "host/machine.h"
#include "host/sha256.h"
#include "host/workers.h"

namespace braid {
namespace {

constexpr uint64_t kShuffleStream = 0x5af1;

// A pseudo-random permutation of 0 .. n-1: a Feistel network on the next power of four, walked
// until it lands inside (cycle walking; Black & Rogaway, 2002).
int64_t permuted(int64_t index, int64_t count, uint64_t seed) {
  int half_bits = 1;
  while ((int64_t{1} << (2 * half_bits)) < count) ++half_bits;
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  auto value = static_cast<uint64_t>(index);
  do {
    uint64_t left = value >> half_bits, right = value & mask;
    for (uint64_t round = 0; round < 4; ++round) {
      const uint64_t next = left ^ (random_u64(seed, kShuffleStream + round, right) & mask);
      left = right;
      right = next;
    }
    value = (left << half_bits) | right;
  } while (value >= static_cast<uint64_t>(count));
  return static_cast<int64_t>(value);
}

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
                 const RecordCheck& check)
      : check_(check) {
    data_.need_ = need;
    if (tokenizer != nullptr) data_.tokenizer_ = *tokenizer;
    data_.config_ = config;
  }

  Result<DataSet> build(RowFiles rows) {
    const auto take = [&](std::string_view line, int64_t place, const std::string& where) {
      line = trim(line);
      if (line.empty()) return ok_status();
      batch_.push_back({std::string(line), place, where, {}, {}});
      batch_bytes_ += line.size();
      const bool full = batch_.size() == kBatchLines || batch_bytes_ >= kBatchBytes;
      return full ? take_batch() : ok_status();
    };
    const Status read = rows.for_each(take);
    BRAID_TRY(take_batch());
    BRAID_TRY(read);
    if (data_.places_.empty()) return no_usable_line(rows.name());
    data_.places_.shrink_to_fit();
    data_.checks_.shrink_to_fit();
    data_.sha256_ = sum_.hex();
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
    return ok_status();
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
    sum_.add(line.text);
    for (const auto* ids : {&record.prompt_ids, &record.response_ids, &record.rejected_ids})
      add_ids(*ids, sum_);
    sum_.add({reinterpret_cast<const char*>(record.learned.data()), record.learned.size()});
    BRAID_ASSIGN(const bool usable, fit(record, line.where));
    if (!usable) return ok_status();
    if (record.unwanted) {
      ++data_.unwanted_;
      return ok_status();
    }
    if (check_) BRAID_TRY(check_(record).at(line.where));
    ++data_.formats_[static_cast<size_t>(record.format)];
    const bool first = data_.places_.empty();
    note_length(record.prompt_ids, first, data_.prompt_lengths_);
    note_length(record.response_ids, first, data_.response_lengths_);
    note_length(record.rejected_ids, first, data_.rejected_lengths_);
    data_.places_.push_back(line.place);
    data_.checks_.push_back(checksum(line.text));
    return ok_status();
  }

  Status describe(const Line& line) {
    BRAID_ASSIGN(const OrderedJson row, parse_ordered_json(line.text, line.where));
    BRAID_ASSIGN(const RowColumns columns, recognise_columns(row, data_.need_, data_.config_));
    data_.description_ = describe_columns(row, columns);
    return ok_status();
  }

  // What data.overlong wants of a prompt that is too long; false: the line is left out.
  Result<bool> fit(DataRecord& record, const std::string& place) {
    const DataConfig& config = data_.config_;
    const auto length = static_cast<int64_t>(record.prompt_ids.size());
    if (length <= config.max_prompt_length) return true;
    if (config.overlong == "error")
      return invalid_input(cat(
          place, ": the prompt has ", length, " tokens, more than data.max_prompt_length = ",
          config.max_prompt_length, "; raise it, or set data.overlong to drop or truncate_left"));
    if (config.overlong == "drop") {
      ++data_.dropped_;
      return false;
    }
    truncate_left(record.prompt_ids, config.max_prompt_length);
    ++data_.truncated_;
    return true;
  }

  DataSet data_;
  const RecordCheck& check_;
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
  BRAID_ASSIGN(const OrderedJson json, parse_ordered_json(line, place));
  return make_record(json, need_, tokenizer_ ? &*tokenizer_ : nullptr, config_).at(place);
}

Result<DataRecord> DataSet::record(int64_t index) const {
  const std::string place = rows_.describe(places_[index]);
  BRAID_ASSIGN(const std::string whole, rows_.line_at(places_[index]));
  const std::string_view line = trim(whole);
  if (checksum(line) != checks_[index])
    return Status(Code::kDataLoss, cat(place,
                                       ": it was changed since the data was loaded; the "
                                       "data of a run must stay as it is"));
  BRAID_ASSIGN(DataRecord record, parse(line, place));
  truncate_left(record.prompt_ids, config_.max_prompt_length);
  return record;
}

Result<DataRecord> DataSet::at(int64_t position) const {
  const auto seed = static_cast<uint64_t>(config_.seed);
  const int64_t index = position % size();
  return record(config_.shuffle ? permuted(index, size(), mix_seed(seed, epoch(position))) : index);
}

Result<DataSet> make_data_set(RowFiles rows, DataNeed need, const Tokenizer* tokenizer,
                              const DataConfig& config, const RecordCheck& check) {
  return DataSetBuilder(need, tokenizer, config, check).build(std::move(rows));
}

Result<DataSet> load_data_set(const std::string& source, DataNeed need, const Tokenizer* tokenizer,
                              const DataConfig& config, const RecordCheck& check) {
  if (source.empty())
    return invalid_input("data.train: no data given; name a JSONL file or task:NAME");
  if (source.rfind("task:", 0) == 0) {
    BRAID_ASSIGN(std::string text, task_source_text(source, static_cast<uint64_t>(config.seed)));
    return make_data_set(RowFiles::of(LineReader::of_text(std::move(text), source)), need,
                         tokenizer, config, check);
  }
  BRAID_ASSIGN(const std::string path, locate_data(source));
  BRAID_ASSIGN(RowFiles rows, RowFiles::open(path));
  return make_data_set(std::move(rows), need, tokenizer, config, check);
}

}  // namespace braid
