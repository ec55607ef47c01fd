#include "cost/log_import.h"

#include <cmath>
#include <map>

#include "base/json.h"
#include "base/text.h"

namespace braid {
namespace {

using Field = std::optional<double> LoggedStep::*;

// Metrics that add up to one field; the first spelling found of a list separated by '|' counts.
struct MetricNames {
  Field field;
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
      {&S::peak_memory_gib, {"perf/max_memory_reserved_gb|perf/max_memory_allocated_gb"}}};
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

using Metrics = std::map<std::string, double>;

void flatten(const Json& json, const std::string& prefix, Metrics* out) {
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
Metrics console_metrics(std::string_view line) {
  Metrics metrics;
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

Result<Metrics> line_metrics(std::string_view line, const std::string& where) {
  if (line.front() != '{') return console_metrics(line);
  BRAID_ASSIGN(const Json json, parse_json(line, where));
  Metrics metrics;
  flatten(json, "", &metrics);
  return metrics;
}

std::optional<double> first_found(const Metrics& metrics, const std::string& spellings) {
  for (const std::string& name : split(spellings, '|'))
    if (const auto found = metrics.find(name); found != metrics.end()) return found->second;
  return std::nullopt;
}

Result<LoggedStep> step_of(const Metrics& metrics, LogFormat format, const std::string& where) {
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
  std::vector<LoggedStep> steps;
  int number = 0;
  for (const std::string& raw : split(text, '\n')) {
    const std::string_view line = trim(raw);
    const std::string where = cat(file, ":", ++number);
    if (line.empty()) continue;
    BRAID_ASSIGN(const Metrics metrics, line_metrics(line, where));
    BRAID_ASSIGN(LoggedStep step, step_of(metrics, format, where));
    step.line = number;
    if (step.generate_s || step.train_s || step.total_s) steps.push_back(step);
  }
  if (steps.empty())
    return invalid_input(
        cat(file, ": no step with phase times found; is the format right (verl, nemo-rl, braid)?"));
  return steps;
}

}  // namespace braid
