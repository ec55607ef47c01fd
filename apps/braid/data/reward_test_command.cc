// braid reward-test: the rewards of a configuration on a file of samples, without a model.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "base/json.h"
#include "braid/commands.h"
#include "braid/config_inputs.h"
#include "braid/data/inputs.h"
#include "config/binder.h"
#include "config/load.h"
#include "host/file.h"
#include "reward/reward.h"
#include "reward/samples.h"

namespace braid {
namespace {

struct RewardTestOptions {
  std::string samples;
  bool json = false;
};

// What is printed: totals, and the outcomes behind them.
struct Report {
  std::vector<RewardOptions> options;
  std::vector<RewardSample> samples;
  RewardOutcomes outcomes;
  RewardTotals totals;
};

// The configuration, its rewards checked; no other part of it needs to be complete.
Result<Config> read_config(const std::vector<std::string>& inputs) {
  BRAID_ASSIGN(const ConfigSources sources, config_sources(inputs));
  BRAID_ASSIGN(const YamlNode root, config_tree(sources));
  Config config;
  BRAID_TRY(OptionReader::read(root, "", config));
  if (config.reward.empty())
    return invalid_input(
        "reward: the list is empty; reward-test needs a configuration with at least one reward");
  BRAID_TRY(check_reward_list(config.reward, *root.find("reward")));
  return config;
}

// Every sample is shown even where a policy says stop: the totals then leave failed samples out.
RewardTotals totals_to_show(const Report& report) {
  std::vector<RewardOptions> lenient = report.options;
  for (RewardOptions& options : lenient)
    if (options.on_error != "zero") options.on_error = "drop";
  return apply_policies(lenient, report.outcomes, report.samples).value();
}

Json number_or_null(double value) { return std::isnan(value) ? Json() : Json(value); }

std::string number_or_dash(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return std::isnan(value) ? "-" : text;
}

double mean_of_present(const std::vector<double>& values) {
  double sum = 0, count = 0;
  for (const double value : values) {
    if (std::isnan(value)) continue;
    sum += value;
    ++count;
  }
  return count > 0 ? sum / count : std::nan("");
}

const char* kind_name(RewardOutcome::Kind kind) {
  return kind == RewardOutcome::Kind::kTimeout ? "timeout" : "error";
}

// Calls see(options, outcome) for every reward that could not score the sample.
template <typename See>
void for_each_failure(const Report& report, size_t sample, const See& see) {
  for (size_t i = 0; i < report.options.size(); ++i) {
    if (report.outcomes.outcomes[i].empty()) continue;
    const RewardOutcome& outcome = report.outcomes.outcomes[i][sample];
    if (is_failure(outcome)) see(report.options[i], outcome);
  }
}

// Samples for which training would end, as their rewards have no policy that goes on.
int64_t stopping_count(const Report& report) {
  int64_t count = 0;
  for (size_t i = 0; i < report.samples.size(); ++i) {
    bool stops = false;
    for_each_failure(report, i, [&](const RewardOptions& options, const RewardOutcome&) {
      stops |= options.on_error != "drop" && options.on_error != "zero";
    });
    count += stops;
  }
  return count;
}

// Of the others those without a total.
int64_t dropped_count(const Report& report) {
  const auto& kept = report.totals.kept;
  return std::count(kept.begin(), kept.end(), false) - stopping_count(report);
}

OrderedJson sample_json(const Report& report, size_t sample) {
  OrderedJson rewards = OrderedJson::object(), failures = OrderedJson::object();
  for (const auto& [name, values] : report.totals.by_name)
    rewards[name] = number_or_null(values[sample]);
  for_each_failure(report, sample, [&](const RewardOptions& options, const RewardOutcome& outcome) {
    failures[reward_name(options)] = {{"kind", kind_name(outcome.kind)}, {"error", outcome.error}};
  });
  return {{"sample", report.samples[sample].sample_id},
          {"rewards", rewards},
          {"total", number_or_null(report.totals.total[sample])},
          {"failures", failures}};
}

OrderedJson summary_json(const Report& report) {
  OrderedJson means = OrderedJson::object();
  for (const auto& [name, values] : report.totals.by_name)
    means[name] = number_or_null(mean_of_present(values));
  Json skipped = Json::array();
  for (const RewardOptions& options : report.options)
    if (options.type == "model") skipped.push_back(reward_name(options));
  return {{"summary",
           {{"samples", report.samples.size()},
            {"mean", means},
            {"mean_total", number_or_null(mean_of_present(report.totals.total))},
            {"timeouts", report.totals.timeouts},
            {"errors", report.totals.errors},
            {"retried", report.totals.retried},
            {"dropped", dropped_count(report)},
            {"stopping", stopping_count(report)},
            {"skipped_models", skipped}}}};
}

void print_json(const Report& report) {
  const auto print = [](const OrderedJson& line) {
    std::printf("%s\n", line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace).c_str());
  };
  for (size_t i = 0; i < report.samples.size(); ++i) print(sample_json(report, i));
  print(summary_json(report));
}

void print_row(const std::string& first, const std::vector<std::string>& cells) {
  std::string line = first;
  line.resize(std::max<size_t>(line.size(), 8), ' ');
  for (const std::string& cell : cells)
    line += cat("  ", std::string(std::max<size_t>(cell.size(), 12) - cell.size(), ' '), cell);
  std::printf("%s\n", line.c_str());
}

void print_table(const Report& report) {
  std::vector<std::string> head, means;
  for (const auto& [name, values] : report.totals.by_name) {
    head.push_back(name);
    means.push_back(number_or_dash(mean_of_present(values)));
  }
  head.push_back("total");
  means.push_back(number_or_dash(mean_of_present(report.totals.total)));
  print_row("sample", head);
  for (size_t i = 0; i < report.samples.size(); ++i) {
    std::vector<std::string> cells;
    for (const auto& [name, values] : report.totals.by_name)
      cells.push_back(number_or_dash(values[i]));
    cells.push_back(number_or_dash(report.totals.total[i]));
    print_row(std::to_string(report.samples[i].sample_id), cells);
  }
  print_row("mean", means);
}

void print_text(const Report& report) {
  print_table(report);
  for (size_t i = 0; i < report.samples.size(); ++i)
    for_each_failure(report, i, [&](const RewardOptions& options, const RewardOutcome& outcome) {
      std::printf("sample %lld, %s: %s: %s\n", static_cast<long long>(report.samples[i].sample_id),
                  reward_name(options).c_str(), kind_name(outcome.kind), outcome.error.c_str());
    });
  for (const RewardOptions& options : report.options)
    if (options.type == "model")
      std::printf("%s: not scored: type model needs the engine\n", reward_name(options).c_str());
  std::string counts = cat(report.samples.size(), " samples, ", report.totals.timeouts,
                           " timeouts, ", report.totals.errors, " errors, ", report.totals.retried,
                           " retried, ", dropped_count(report), " dropped");
  if (const int64_t stopping = stopping_count(report); stopping > 0)
    counts += cat(", ", stopping, " for which training would stop (on_error)");
  std::printf("%s\n", counts.c_str());
}

Status run_reward_test(const RewardTestOptions& options, const std::vector<std::string>& inputs) {
  BRAID_ASSIGN(const Config config, read_config(inputs));
  Report report;
  report.options = config.reward;
  BRAID_ASSIGN(const std::string text, read_file(options.samples));
  BRAID_ASSIGN(report.samples, parse_samples(text, options.samples, config.data.label_key));
  BRAID_ASSIGN(auto rewards, make_rewards(report.options));
  ScoreContext context;
  context.total_steps = config.train.total_steps;
  context.show_everything = true;
  BRAID_ASSIGN(report.outcomes, collect_outcomes(rewards, report.options, report.samples, context));
  Result<RewardTotals> totals = apply_policies(report.options, report.outcomes, report.samples);
  report.totals = totals.ok() ? *totals : totals_to_show(report);
  options.json ? print_json(report) : print_text(report);
  return totals.status();
}

Action define_reward_test(CLI::App& app) {
  auto options = std::make_shared<RewardTestOptions>();
  take_config_inputs(app);
  app.add_option("--samples", options->samples,
                 "JSON lines {\"prompt\", \"response\", \"label\", ...}; - is standard input")
      ->required();
  app.add_flag("--json", options->json, "one JSON object per sample, then a summary");
  return [options, &app] { return run_reward_test(*options, app.remaining()); };
}

}  // namespace

extern const Command kRewardTestCommand = {
    "reward-test",
    "score a file of samples with the configured rewards, without a model (docs/rewards.md)",
    define_reward_test};

}  // namespace braid
