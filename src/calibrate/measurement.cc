#include "calibrate/measurement.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"
#include "calibrate/csv.h"

namespace braid::inline calibrate {
namespace {

constexpr int kMostDevices = 1 << 24;

struct TextColumn {
  const char* name;
  std::string Measurement::*member;
  std::vector<std::string> known;  // words of an enumeration; empty: any text
};
struct CountColumn {
  const char* name;
  std::optional<int> Measurement::*member;
  int least;
  int most = kMostDevices;
};
struct NumberColumn {
  const char* name;
  std::optional<double> Measurement::*member;
  bool may_be_zero;
};

const std::vector<TextColumn>& text_columns() {
  static const std::vector<TextColumn> columns = {
      {"id", &Measurement::id, {}},
      {"phase",
       &Measurement::phase,
       {"", "total", "generate", "logprob", "ref_logprob", "train", "reshard", "weight_sync",
        "first_token", "decode_step"}},
      {"model", &Measurement::model, {}},
      {"critic_model", &Measurement::critic_model, {}},
      {"gpu", &Measurement::gpu, {}},
      {"precision", &Measurement::precision, {"", "bf16", "fp16", "fp8", "fp4", "f32"}},
      {"kv_precision", &Measurement::kv_precision, {"", "bf16", "fp16", "fp8", "fp4", "f32"}},
      {"recompute", &Measurement::recompute, {"", "none", "selective", "full", "unknown"}},
      {"tuning", &Measurement::tuning, {"", "full", "lora"}},
      {"engine", &Measurement::engine, {}},
      {"collective",
       &Measurement::collective,
       {"", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"}},
      {"coll_algo", &Measurement::coll_algo, {"", "ring", "nvls"}},
      {"algorithm", &Measurement::algorithm, {"", "ppo", "grpo", "dapo"}},
      {"placement", &Measurement::placement, {"", "colocated", "split", "one_step_off", "async"}},
      {"group", &Measurement::group, {}},
      {"note", &Measurement::note, {}},
      {"source", &Measurement::source, {}}};
  return columns;
}

const std::vector<TextColumn>& memory_text_columns() {
  static const std::vector<TextColumn> columns = {
      {"memory_kind",
       &Measurement::memory_kind,
       {"allocated", "reserved", "nvidia_smi", "unstated", "fits", "oom"}},
      {"optimizer", &Measurement::optimizer, {}},
      {"offload",
       &Measurement::offload,
       {"", "none", "optimizer", "activations", "params+grads+optimizer", "unknown"}}};
  return columns;
}

constexpr CountColumn kCounts[] = {{"n_gpus", &Measurement::n_gpus, 1},
                                   {"gpus_per_node", &Measurement::gpus_per_node, 1},
                                   {"dp", &Measurement::dp, 1},
                                   {"tp", &Measurement::tp, 1},
                                   {"pp", &Measurement::pp, 1},
                                   {"vpp", &Measurement::vpp, 1},
                                   {"cp", &Measurement::cp, 1},
                                   {"ep", &Measurement::ep, 1},
                                   {"zero_stage", &Measurement::zero_stage, 0, 3},
                                   {"gen_tp", &Measurement::gen_tp, 1},
                                   {"train_gpus", &Measurement::train_gpus, 1},
                                   {"rollout_gpus", &Measurement::rollout_gpus, 1}};

constexpr NumberColumn kNumbers[] = {
    {"internode_gbps_per_gpu", &Measurement::internode_gbps_per_gpu, false},
    {"micro_batch", &Measurement::micro_batch, false},
    {"global_batch", &Measurement::global_batch, false},
    {"mini_batch", &Measurement::mini_batch, false},
    {"seq_len", &Measurement::seq_len, false},
    {"prompt_len", &Measurement::prompt_len, true},
    {"output_len", &Measurement::output_len, false},
    {"max_output_len", &Measurement::max_output_len, false},
    {"concurrency", &Measurement::concurrency, false},
    {"requests", &Measurement::requests, false},
    {"bytes", &Measurement::bytes, false},
    {"prompts", &Measurement::prompts, false},
    {"samples_per_prompt", &Measurement::samples_per_prompt, false},
    {"staleness", &Measurement::staleness, true},
    {"value", &Measurement::value, false}};

constexpr NumberColumn kPeakMemory = {"peak_memory_gib", &Measurement::peak_memory_gib, false};
// Columns that a row may hold without being part of the workload that a prediction takes.
const std::vector<std::string>& other_columns() {
  static const std::vector<std::string> names = {"kind", "metric", "flop_convention", "approx"};
  return names;
}

bool knows(const TextColumn& column, const std::string& word) {
  return column.known.empty() ||
         std::find(column.known.begin(), column.known.end(), word) != column.known.end();
}

// "a b c": the words that a cell may hold besides being empty.
std::string known_words(const TextColumn& column) {
  std::vector<std::string> words = column.known;
  words.erase(std::remove(words.begin(), words.end(), ""), words.end());
  return join(words, " ");
}

// What later files of the schema could call something: lower-case letters, digits and _ + . -
bool is_word(const std::string& text) {
  return !text.empty() &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_+.-") == std::string::npos;
}

// "8.0" is 8: tools that know numbers but no empty cells write whole numbers so.
bool read_whole(std::string_view text, int64_t* out) {
  if (const size_t dot = text.find('.'); dot != std::string_view::npos && dot + 1 < text.size())
    if (text.find_first_not_of('0', dot + 1) == std::string_view::npos) text = text.substr(0, dot);
  return parse_int(text, out);
}

class RowReader {
 public:
  RowReader(const CsvTable& table, const std::string& file) : table_(table), file_(file) {}

  Status find_columns() {
    for (const auto& column : text_columns()) BRAID_TRY(require(column.name));
    for (const auto& column : kCounts) BRAID_TRY(require(column.name));
    for (const auto& column : kNumbers) BRAID_TRY(require(column.name));
    for (const auto& name : other_columns()) BRAID_TRY(require(name));
    is_memory_ = index("memory_kind") >= 0 || index("peak_memory_gib") >= 0;
    if (!is_memory_) return ok_status();
    BRAID_TRY(require(kPeakMemory.name));
    for (const auto& column : memory_text_columns()) BRAID_TRY(require(column.name));
    return ok_status();
  }

  Result<Measurement> read(const CsvRow& row) const {
    Measurement out;
    out.line = row.line;
    out.is_memory = is_memory_;
    for (const auto& column : text_columns()) BRAID_TRY(read_text(row, column, &out));
    for (const auto& column : kCounts) BRAID_TRY(read_count(row, column, &out));
    for (const auto& column : kNumbers) BRAID_TRY(read_number(row, column, &out));
    BRAID_TRY(read_kind(row, &out));
    BRAID_TRY(read_metric(row, &out));
    BRAID_TRY(read_approx(row, &out));
    if (out.id.empty()) return wrong(row, "id", "must not be empty");
    if (!is_memory_) return out;
    BRAID_TRY(read_number(row, kPeakMemory, &out));
    for (const auto& column : memory_text_columns()) BRAID_TRY(read_text(row, column, &out));
    return out;
  }

 private:
  int index(const std::string& name) const {
    const auto found = std::find(table_.header.begin(), table_.header.end(), name);
    return found == table_.header.end() ? -1 : static_cast<int>(found - table_.header.begin());
  }

  Status require(const std::string& name) const {
    if (index(name) >= 0) return ok_status();
    return invalid_input(
        cat(file_, ":1: missing column '", name, "'", did_you_mean(name, table_.header),
            "; the header must hold every column of the schema, cells may be empty"));
  }

  const std::string& cell(const CsvRow& row, const std::string& name) const {
    return row.cells[index(name)];
  }

  Status wrong(const CsvRow& row, const std::string& column, const std::string& rule) const {
    return invalid_input(cat(file_, ":", row.line, ": column '", column, "' ", rule, ", is '",
                             cell(row, column), "'"));
  }

  Status read_text(const CsvRow& row, const TextColumn& column, Measurement* out) const {
    const std::string& text = cell(row, column.name);
    if (!knows(column, text) && !is_word(text))
      return wrong(row, column.name, cat("must be one of: ", known_words(column)));
    out->*column.member = text;
    return ok_status();
  }

  Status read_count(const CsvRow& row, const CountColumn& column, Measurement* out) const {
    const std::string& text = cell(row, column.name);
    if (text.empty()) return ok_status();
    int64_t number = 0;
    if (!read_whole(text, &number) || number < column.least || number > column.most)
      return wrong(
          row, column.name,
          cat("must be a whole number from ", column.least, " to ", column.most, " or empty"));
    out->*column.member = static_cast<int>(number);
    return ok_status();
  }

  Status read_number(const CsvRow& row, const NumberColumn& column, Measurement* out) const {
    const std::string& text = cell(row, column.name);
    if (text.empty()) return ok_status();
    double number = 0;
    if (!parse_double(text, &number) || !std::isfinite(number) || number < 0 ||
        (number == 0 && !column.may_be_zero))
      return wrong(row, column.name,
                   column.may_be_zero ? "must be a finite number from 0 or empty"
                                      : "must be a finite number above 0 or empty");
    out->*column.member = number;
    return ok_status();
  }

  Status read_kind(const CsvRow& row, Measurement* out) const {
    for (const MeasurementKind kind : {MeasurementKind::kTrainStep, MeasurementKind::kGenerate,
                                       MeasurementKind::kCollective, MeasurementKind::kRlStep}) {
      if (cell(row, "kind") != kind_name(kind)) continue;
      out->kind = kind;
      return ok_status();
    }
    return wrong(row, "kind", "must be train_step, generate, collective or rl_step");
  }

  Status read_metric(const CsvRow& row, Measurement* out) const {
    for (const MeasuredQuantity metric :
         {MeasuredQuantity::kNone, MeasuredQuantity::kSecondsPerStep,
          MeasuredQuantity::kTokensPerSecondPerGpu, MeasuredQuantity::kOutputTokensPerSecond,
          MeasuredQuantity::kBusbw, MeasuredQuantity::kTimeUs}) {
      if (cell(row, "metric") != metric_name(metric)) continue;
      out->metric = metric;
      if (metric == MeasuredQuantity::kNone && !is_memory_) break;
      return ok_status();
    }
    return wrong(row, "metric",
                 "must be seconds_per_step, tokens_per_s_per_gpu, output_tokens_per_s, "
                 "busbw_gbytes_per_s or time_us");
  }

  Status read_approx(const CsvRow& row, Measurement* out) const {
    const std::string& text = cell(row, "approx");
    if (text != "" && text != "true" && text != "false")
      return wrong(row, "approx", "must be true or false");
    out->approx = text == "true";
    return ok_status();
  }

  const CsvTable& table_;
  const std::string& file_;
  bool is_memory_ = false;
};

std::string key_part(const std::optional<int>& value) { return value ? cat(*value, "|") : "|"; }
std::string key_part(const std::optional<double>& value) { return value ? cat(*value, "|") : "|"; }

}  // namespace

const char* kind_name(MeasurementKind kind) {
  switch (kind) {
    case MeasurementKind::kTrainStep:
      return "train_step";
    case MeasurementKind::kGenerate:
      return "generate";
    case MeasurementKind::kCollective:
      return "collective";
    case MeasurementKind::kRlStep:
      return "rl_step";
  }
  return "?";
}

const char* metric_name(MeasuredQuantity metric) {
  switch (metric) {
    case MeasuredQuantity::kNone:
      return "";
    case MeasuredQuantity::kSecondsPerStep:
      return "seconds_per_step";
    case MeasuredQuantity::kTokensPerSecondPerGpu:
      return "tokens_per_s_per_gpu";
    case MeasuredQuantity::kOutputTokensPerSecond:
      return "output_tokens_per_s";
    case MeasuredQuantity::kBusbw:
      return "busbw_gbytes_per_s";
    case MeasuredQuantity::kTimeUs:
      return "time_us";
  }
  return "?";
}

Result<std::vector<Measurement>> parse_measurements(std::string_view text,
                                                    const std::string& file) {
  BRAID_ASSIGN(const CsvTable table, parse_csv(text, file));
  RowReader reader(table, file);
  BRAID_TRY(reader.find_columns());
  std::vector<Measurement> rows;
  std::set<std::string> ids;
  for (const CsvRow& row : table.rows) {
    BRAID_ASSIGN(Measurement measurement, reader.read(row));
    if (!ids.insert(measurement.id).second)
      return invalid_input(cat(file, ":", row.line, ": id '", measurement.id, "' is there twice"));
    rows.push_back(std::move(measurement));
  }
  if (rows.empty()) return invalid_input(cat(file, ":1: no rows below the header"));
  return rows;
}

Status check_words(const Measurement& row) {
  const auto check = [&](const TextColumn& column) -> Status {
    const std::string& word = row.*column.member;
    if (word.empty() || knows(column, word)) return ok_status();
    return invalid_input(cat(column.name, " '", word, "' is none of: ", known_words(column),
                             did_you_mean(word, column.known)));
  };
  for (const TextColumn& column : text_columns()) BRAID_TRY(check(column));
  if (!row.is_memory) return ok_status();
  for (const TextColumn& column : memory_text_columns()) BRAID_TRY(check(column));
  return ok_status();
}

std::string configuration_key(const Measurement& row) {
  std::string key =
      cat(kind_name(row.kind), "|", row.phase, "|", row.model, "|", row.gpu, "|", row.precision,
          "|", row.kv_precision, "|", row.recompute, "|", row.tuning, "|", row.collective, "|",
          row.coll_algo, "|", row.algorithm, "|", row.placement, "|");
  for (const CountColumn& column : kCounts) key += key_part(row.*column.member);
  for (const NumberColumn& column : kNumbers)
    if (column.member != &Measurement::value) key += key_part(row.*column.member);
  return key;
}

}  // namespace braid::inline calibrate
