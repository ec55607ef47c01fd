#include "data/dataset.h"

#include <zlib.h>

#include <algorithm>

#include "base/rng.h"
#include "base/text.h"
#include "data/record.h"
#include "data/task.h"
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

struct Line {
  std::string text;
  int64_t begin_byte = 0;
  std::string place;
  Status made;
  DataRecord record;  // where made is ok
};

}  // namespace

// The one pass over all lines: records are made on all cores, and taken over in order.
class DataSetBuilder {
 public:
  DataSetBuilder(DataNeed need, const Tokenizer* tokenizer, const DataConfig& config) {
    data_.need_ = need;
    if (tokenizer != nullptr) data_.tokenizer_ = *tokenizer;
    data_.config_ = config;
  }

  Result<DataSet> build(LineReader reader) {
    const Status read = reader.for_each([&](std::string_view line, int64_t begin_byte) {
      ++number_;
      line = trim(line);
      if (line.empty()) return ok_status();
      batch_.push_back({std::string(line), begin_byte, cat(reader.name(), ":", number_), {}, {}});
      batch_bytes_ += line.size();
      const bool full = batch_.size() == kBatchLines || batch_bytes_ >= kBatchBytes;
      return full ? take_batch() : ok_status();
    });
    BRAID_TRY(take_batch());
    BRAID_TRY(read);
    if (data_.places_.empty()) return invalid_input(cat(reader.name(), ": no usable line"));
    data_.places_.shrink_to_fit();
    data_.checks_.shrink_to_fit();
    data_.sha256_ = sum_.hex();
    data_.reader_ = std::move(reader);
    return std::move(data_);
  }

 private:
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

  Status make(Line& line) const {
    BRAID_ASSIGN(line.record, data_.parse(line.text, line.place));
    return ok_status();
  }

  Status add(Line& line) {
    BRAID_TRY(line.made);
    DataRecord& record = line.record;
    ++data_.lines_;
    sum_.add(line.text);
    for (const auto* ids : {&record.prompt_ids, &record.response_ids, &record.rejected_ids})
      add_ids(*ids, sum_);
    BRAID_ASSIGN(const bool usable, fit(record, line.place));
    if (!usable) return ok_status();
    const bool first = data_.places_.empty();
    note_length(record.prompt_ids, first, data_.prompt_lengths_);
    note_length(record.response_ids, first, data_.response_lengths_);
    note_length(record.rejected_ids, first, data_.rejected_lengths_);
    data_.places_.push_back(line.begin_byte);
    data_.checks_.push_back(checksum(line.text));
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
  Sha256 sum_;
  int64_t number_ = 0;  // of the line, from 1
  std::vector<Line> batch_;
  size_t batch_bytes_ = 0;
  const size_t cores_ = static_cast<size_t>(std::max<int64_t>(1, processor().cores));
};

int64_t DataSet::held_bytes() const {
  const size_t index = places_.capacity() * sizeof(int64_t) + checks_.capacity() * sizeof(uint32_t);
  return static_cast<int64_t>(index) + reader_.held_bytes();
}

Result<DataRecord> DataSet::parse(std::string_view line, const std::string& place) const {
  BRAID_ASSIGN(const Json json, parse_json(line, place));
  return make_record(json, need_, tokenizer_ ? &*tokenizer_ : nullptr, config_).at(place);
}

Result<DataRecord> DataSet::record(int64_t index) const {
  const std::string place = cat(reader_.name(), ", line at byte ", places_[index]);
  BRAID_ASSIGN(const std::string whole, reader_.line_at(places_[index]));
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

Result<DataSet> make_data_set(LineReader reader, DataNeed need, const Tokenizer* tokenizer,
                              const DataConfig& config) {
  return DataSetBuilder(need, tokenizer, config).build(std::move(reader));
}

Result<DataSet> load_data_set(const std::string& source, DataNeed need, const Tokenizer* tokenizer,
                              const DataConfig& config) {
  if (source.empty())
    return invalid_input("data.train: no data given; name a JSONL file or task:NAME");
  LineReader reader;
  if (source.rfind("task:", 0) == 0) {
    BRAID_ASSIGN(std::string text, task_source_text(source, static_cast<uint64_t>(config.seed)));
    reader = LineReader::of_text(std::move(text), source);
  } else {
    BRAID_ASSIGN(reader, LineReader::open(source));
  }
  return make_data_set(std::move(reader), need, tokenizer, config);
}

}  // namespace braid
