// braid eval: accuracy or mean reward of a model on data.eval, and pass@k; of several models beside
// each other.
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "base/json.h"
#include "base/log.h"
#include "braid/data/inputs.h"
#include "braid/engine_options.h"
#include "braid/outputs.h"
#include "host/file.h"
#include "host/hub_cache.h"
#include "launch/job.h"
#include "scoring/compare.h"
#include "scoring/evaluate.h"
#include "weights/check_tokenizers.h"

namespace braid {
namespace {

struct EvaluatedModel {
  std::string name;
  EvalReport report;
  PromptMeans means;
};

Result<EvalReport> evaluate_model(const Config& config) {
  std::vector<std::string> notes;
  BRAID_TRY(check_reward_tokenizers(config, &notes));
  for (const std::string& note : notes) log_warning(note);
  Roles roles;
  BRAID_ASSIGN(roles["actor"].model, load_policy(config));
  BRAID_ASSIGN(const RewardModels models, load_reward_models(config, roles));
  BRAID_ASSIGN(const std::unique_ptr<Evaluator> evaluator, Evaluator::create(config));
  return evaluator->run(*roles["actor"].model, models);
}

// The configuration of another policy; everything else, prompts and seeds too, stays.
Result<Config> with_model(Config config, const std::string& folder) {
  BRAID_ASSIGN(config.model.path, locate_model(folder).at("--against"));
  config.model.config.clear();
  return config;
}

Json row_of_sample(Json row, const EvaluatedModel& model, bool several) {
  if (several) row["model"] = model.name;
  return row;
}

Status write_samples(const std::string& path, const std::vector<EvaluatedModel>& models) {
  if (path.empty()) return ok_status();
  std::string text;
  for (const EvaluatedModel& model : models)
    for (const Json& row : model.report.samples)
      text += row_of_sample(row, model, models.size() > 1)
                  .dump(-1, ' ', false, Json::error_handler_t::replace) +
              "\n";
  return write_file_atomic(path, text);
}

PairedDifference difference_of(const EvaluatedModel& first, const EvaluatedModel& second,
                               const std::string& metric) {
  const auto left = first.means.find(metric), right = second.means.find(metric);
  if (left == first.means.end() || right == second.means.end()) return {};
  return paired_difference(left->second, right->second);
}

Json compared_json(const std::vector<EvaluatedModel>& models) {
  Json out = {{"models", Json::array()}, {"differences", Json::array()}};
  for (const EvaluatedModel& model : models)
    out["models"].push_back({{"model", model.name}, {"metrics", model.report.metrics}});
  for (size_t i = 1; i < models.size(); ++i) {
    Json metrics = Json::object();
    for (const auto& [metric, values] : models[0].means) {
      const PairedDifference found = difference_of(models[0], models[i], metric);
      if (found.prompts == 0) continue;
      metrics[metric] = {
          {"difference", found.mean},
          {"standard_error", found.prompts > 1 ? Json(found.standard_error) : Json()},
          {"prompts", found.prompts}};
    }
    out["differences"].push_back({{"against", models[i].name}, {"metrics", metrics}});
  }
  return out;
}

std::string cell(const char* format, double value) {
  char text[48];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string difference_cell(const PairedDifference& found) {
  if (found.prompts == 0) return "";
  const std::string mean = cell("%+.4g", found.mean);
  return found.prompts < 2 ? mean : cat(mean, " ± ", cell("%.2g", found.standard_error));
}

// Columns as wide as their widest cell; "±" takes two bytes and one place.
void print_table(const std::vector<std::vector<std::string>>& rows) {
  const auto width = [](const std::string& text) {
    return std::count_if(text.begin(), text.end(),
                         [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
  };
  std::vector<int64_t> widths(rows.front().size(), 0);
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max<int64_t>(widths[i], width(row[i]));
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - width(row[i]), ' ');
      line += i == 0 ? row[i] + space : "  " + space + row[i];
    }
    std::printf("%s\n", line.substr(0, line.find_last_not_of(' ') + 1).c_str());
  }
}

// A row for each metric; the models' columns are numbered, their names stand above.
void print_compared(const std::vector<EvaluatedModel>& models) {
  std::vector<std::string> head = {"metric"};
  std::set<std::string> metrics;
  for (size_t i = 0; i < models.size(); ++i) {
    std::printf("%zu: %s\n", i + 1, models[i].name.c_str());
    head.push_back(cat(i + 1));
    for (const auto& [metric, value] : models[i].report.metrics) metrics.insert(metric);
  }
  for (size_t i = 1; i < models.size(); ++i) head.push_back(cat("1 - ", i + 1));
  std::vector<std::vector<std::string>> rows = {head};
  for (const std::string& metric : metrics) {
    std::vector<std::string> row = {metric};
    for (const EvaluatedModel& model : models) {
      const auto found = model.report.metrics.find(metric);
      row.push_back(found == model.report.metrics.end() ? "" : cell("%.6g", found->second));
    }
    for (size_t i = 1; i < models.size(); ++i)
      row.push_back(difference_cell(difference_of(models[0], models[i], metric)));
    rows.push_back(row);
  }
  print_table(rows);
  std::printf("±: standard error of the difference, over prompts\n");
}

void print_metrics(const EvalReport& report, bool json) {
  if (json) std::printf("%s\n", Json(report.metrics).dump().c_str());
  for (const auto& [name, value] : report.metrics)
    if (!json) std::printf("%-24s %.6g\n", name.c_str(), value);
}

Status evaluate_models(const EvalArguments& arguments, const std::vector<std::string>& inputs) {
  BRAID_TRY(check_outputs({{"--samples", arguments.samples}}));
  BRAID_ASSIGN(const LoadedConfig loaded, load_config_arguments(inputs));
  BRAID_ASSIGN(const Config config, local_config(loaded.config));
  if (states_plan(config))
    log_warning(
        "plan, placement, parallel: without effect, 'braid eval' is one process; eval.every_steps "
        "and eval.at_start evaluate on the ranks of 'braid train'");
  if (config.train.threads > 0) at::set_num_threads(static_cast<int>(config.train.threads));
  const std::string own = loaded.config.model.path;
  std::vector<std::pair<std::string, Config>> wanted = {
      {own.empty() ? loaded.config.model.config : own, config}};
  for (const std::string& folder : arguments.against) {
    BRAID_ASSIGN(Config other, with_model(config, folder));
    wanted.emplace_back(folder, std::move(other));
  }
  std::vector<EvaluatedModel> models;
  for (const auto& [name, options] : wanted) {
    EvaluatedModel model{name, {}, {}};
    BRAID_ASSIGN(model.report, evaluate_model(options));
    model.means = prompt_means(model.report, options.eval);
    models.push_back(std::move(model));
  }
  if (models.size() == 1)
    print_metrics(models.front().report, arguments.json);
  else if (arguments.json)
    std::printf("%s\n", compared_json(models).dump().c_str());
  else
    print_compared(models);
  return write_samples(arguments.samples, models);
}

}  // namespace

extern const Command kEvalCommand = kEval.with(evaluate_models);

}  // namespace braid
