#include "foreign/logs/log_import.h"

#include <cmath>
#include <map>
#include <utility>

#include "base/encoding.h"
#include "base/json.h"
#include "base/text.h"

namespace braid::inline foreign {
namespace {

using StepField = std::optional<double> LoggedStep::*;

// Metrics that add up to one field; the first spelling found of a list separated by '|' counts.
struct MetricNames {
  StepField field;
  std::vector<std::string> sum_of;
};

const std::vector<MetricNames>& names_of(LogFormat format) {
  using S = LoggedStep;
  static const std::vector<MetricNames> verl = {
      {&S::generate_s, {"timing_s/gen|timing_s/generate_sequences"}},
      {&S::logprob_s, {"timing_s/old_log_prob", "timing_s/ref|timing_s/ref_log_prob"}},
      {&S::train_s, {"timing_s/update_actor"}},
      {&S::critic_s, {"timing_s/values", "timing_s/update_critic"}},
      {&S::reshard_s,
       {"timing_s/param_sync|timing_s/update_weights|timing_s/reshard|timing_s/"
        "sync_rollout_weights"}},
      {&S::total_s, {"timing_s/step|perf/time_per_step"}},
      {&S::prompt_len, {"prompt_length/mean"}},
      {&S::output_len, {"response_length/mean"}},
      {&S::max_output_len, {"response_length/max"}},
      {&S::peak_memory_gib,
       {"perf/max_memory_reserved_gb|actor/perf/max_memory_reserved_gb|"
        "perf/max_memory_allocated_gb|actor/perf/max_memory_allocated_gb"}}};
  static const std::vector<MetricNames> nemo = {
      {&S::generate_s, {"timing/train/generation|timing/train/exposed_generation"}},
      {&S::logprob_s, {"timing/train/policy_and_reference_logprobs"}},
      {&S::train_s, {"timing/train/policy_training"}},
      {&S::critic_s, {"timing/train/value_training"}},
      {&S::reshard_s,
       {"timing/train/weight_sync|timing/train/prepare_for_generation/total|timing/train/"
        "prepare_for_generation"}},
      {&S::total_s, {"timing/train/total_step_time"}},
      {&S::prompt_len, {"train/mean_prompt_length|mean_prompt_length"}},
      {&S::output_len, {"train/mean_gen_tokens_per_sample|mean_gen_tokens_per_sample"}},
      {&S::max_output_len, {"train/max_gen_tokens_per_sample|max_gen_tokens_per_sample"}},
      {&S::peak_memory_gib, {"ray/node.0.gpu.0.mem_gb|perf/max_memory_reserved_gb"}}};
  static const std::vector<MetricNames> braid = {
      {&S::generate_s, {"time/generate"}},
      {&S::logprob_s, {"time/old_logprob", "time/ref_logprob"}},
      {&S::train_s, {"time/update_actor"}},
      {&S::critic_s, {"time/values", "time/update_critic"}},
      {&S::reshard_s, {"time/sync"}},
      {&S::total_s, {"time/step"}},
      {&S::prompt_len, {"length/prompt_mean"}},
      {&S::output_len, {"length/response_mean"}},
      {&S::max_output_len, {"length/response_max"}},
      {&S::peak_memory_gib, {"perf/peak_device_gb|perf/peak_rss_gb"}}};
  if (format == LogFormat::kNemoRl) return nemo;
  return format == LogFormat::kVerl ? verl : braid;
}

using LoggedMetrics = std::map<std::string, double>;

void flatten(const Json& json, const std::string& prefix, LoggedMetrics* out) {
  for (const auto& [key, value] : json.items()) {
    const bool wrapper = prefix.empty() && (key == "data" || key == "metrics");
    const std::string name = wrapper ? "" : prefix.empty() ? key : prefix + "/" + key;
    if (value.is_object()) flatten(value, name, out);
    if (value.is_number()) (*out)[name] = value.get<double>();
  }
}

// "8.25" of "np.float64(8.25)", as newer numpy versions print a number.
std::string_view bare_number(std::string_view text) {
  text = trim(text);
  const size_t open = text.find('(');
  if (open == std::string_view::npos || text.back() != ')') return text;
  return text.substr(open + 1, text.size() - open - 2);
}

// "step:3 - timing_s/gen:12.5 - response_length/mean:812.0"; other text on the line is ignored.
LoggedMetrics console_metrics(std::string_view line) {
  LoggedMetrics metrics;
  size_t at = 0;
  while (at < line.size()) {
    size_t end = line.find(" - ", at);
    if (end == std::string_view::npos) end = line.size();
    const std::string_view part = trim(line.substr(at, end - at));
    const size_t colon = part.rfind(':'), blank = part.find_last_of(" \t", colon);
    double value = 0;
    if (colon != std::string_view::npos &&
        parse_double(bare_number(part.substr(colon + 1)), &value)) {
      const size_t start = blank == std::string_view::npos ? 0 : blank + 1;
      metrics[std::string(part.substr(start, colon - start))] = value;
    }
    at = end + 3;
  }
  return metrics;
}

Result<LoggedMetrics> line_metrics(std::string_view line, const std::string& where) {
  if (line.front() != '{') return console_metrics(line);
  BRAID_ASSIGN(const Json json, parse_json(line, where));
  LoggedMetrics metrics;
  flatten(json, "", &metrics);
  return metrics;
}

std::optional<double> first_found(const LoggedMetrics& metrics, const std::string& spellings) {
  for (const std::string& name : split(spellings, '|'))
    if (const auto found = metrics.find(name); found != metrics.end()) return found->second;
  return std::nullopt;
}

// What one step logged, and where.
struct StepMetrics {
  int line = 0;
  std::string where;
  LoggedMetrics metrics;
};

// NeMo-RL's dump of TensorBoard, one object for the run: {"timing/train/generation": {"1": 12.5,
// "2": 11.9}, ...}. Empty where the text is anything else.
std::vector<StepMetrics> metrics_by_step(std::string_view text, const std::string& file) {
  if (text.empty() || text.front() != '{') return {};
  const auto json = parse_json(text, file);
  if (!json.ok()) return {};
  std::map<int64_t, LoggedMetrics> by_step;
  for (const auto& [name, values] : json->items()) {
    if (!values.is_object()) return {};
    for (const auto& [key, value] : values.items()) {
      int64_t step = 0;
      if (!parse_int(key, &step)) return {};
      if (value.is_number()) by_step[step][name] = value.get<double>();
    }
  }
  std::vector<StepMetrics> out;
  for (auto& [step, metrics] : by_step)
    out.push_back({1, cat(file, ": step ", step), std::move(metrics)});
  return out;
}

// "name: 12.5s (18.2%)" of a bullet on NeMo-RL's console.
struct Bullet {
  std::string name;
  double value = 0;
  bool is_time = false;
};
std::optional<Bullet> console_bullet(std::string_view line) {
  constexpr std::string_view kBullet = "\u2022 ";
  const size_t at = line.find(kBullet);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view part = trim(line.substr(at + kBullet.size()));
  const size_t colon = part.find(": ");
  if (colon == std::string_view::npos) return std::nullopt;
  std::string_view number = trim(part.substr(colon + 2));
  number = number.substr(0, number.find(' '));
  Bullet bullet{std::string(part.substr(0, colon)), 0, false};
  bullet.is_time = !number.empty() && number.back() == 's';
  if (bullet.is_time) number.remove_suffix(1);
  if (!parse_double(number, &bullet.value)) return std::nullopt;
  return bullet;
}

// NeMo-RL's console: the mean length, then "Total step time" and a bullet for each phase.
std::vector<StepMetrics> nemo_console_steps(const std::vector<std::string>& lines,
                                            const std::string& file) {
  std::vector<StepMetrics> steps;
  LoggedMetrics before_times;
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto bullet = console_bullet(lines[i]);
    if (!bullet) continue;
    if (bullet->name == "Mean Generation Length")
      before_times["train/mean_gen_tokens_per_sample"] = bullet->value;
    if (!bullet->is_time) continue;
    const int number = static_cast<int>(i) + 1;
    if (bullet->name == "Total step time") {
      steps.push_back({number, cat(file, ":", number), std::exchange(before_times, {})});
      steps.back().metrics["timing/train/total_step_time"] = bullet->value;
    } else if (!steps.empty()) {
      steps.back().metrics[cat("timing/train/", bullet->name)] = bullet->value;
    }
  }
  return steps;
}

Result<std::vector<StepMetrics>> line_steps(const std::vector<std::string>& lines,
                                            const std::string& file) {
  std::vector<StepMetrics> out;
  for (size_t i = 0; i < lines.size(); ++i) {
    const int number = static_cast<int>(i) + 1;
    const std::string_view line = trim(lines[i]);
    if (line.empty()) continue;
    const std::string where = cat(file, ":", number);
    BRAID_ASSIGN(LoggedMetrics metrics, line_metrics(line, where));
    out.push_back({number, where, std::move(metrics)});
  }
  return out;
}

Result<LoggedStep> step_of(const LoggedMetrics& metrics, LogFormat format,
                           const std::string& where) {
  LoggedStep step;
  for (const MetricNames& names : names_of(format)) {
    for (const std::string& spellings : names.sum_of) {
      const auto value = first_found(metrics, spellings);
      if (!value) continue;
      if (!std::isfinite(*value) || *value < 0)
        return invalid_input(cat(where, ": '", spellings, "' is ", *value,
                                 "; a time or size must be finite and not negative"));
      step.*names.field = (step.*names.field).value_or(0) + *value;
    }
  }
  return step;
}

}  // namespace

Result<LogFormat> parse_log_format(const std::string& text) {
  if (text == "verl") return LogFormat::kVerl;
  if (text == "nemo-rl") return LogFormat::kNemoRl;
  if (text == "braid") return LogFormat::kBraid;
  return invalid_input(cat("unknown log format '", text, "'; use verl, nemo-rl or braid"));
}

Result<std::vector<LoggedStep>> parse_step_log(std::string_view text, LogFormat format,
                                               const std::string& file) {
  text = without_byte_order_mark(text);
  const std::vector<std::string> lines = split(text, '\n');
  std::vector<StepMetrics> logged = metrics_by_step(trim(text), file);
  if (logged.empty() && format == LogFormat::kNemoRl) logged = nemo_console_steps(lines, file);
  if (logged.empty()) {
    BRAID_ASSIGN(logged, line_steps(lines, file));
  }
  std::vector<LoggedStep> steps;
  for (const StepMetrics& one : logged) {
    BRAID_ASSIGN(LoggedStep step, step_of(one.metrics, format, one.where));
    step.line = one.line;
    if (step.generate_s || step.train_s || step.total_s) steps.push_back(step);
  }
  if (steps.empty())
    return invalid_input(
        cat(file, ": no step with phase times found; is the format right (verl, nemo-rl, braid)?"));
  return steps;
}

}  // namespace braid::inline foreign
