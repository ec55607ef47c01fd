#include "report/run_record.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "base/text.h"
#include "base/yaml.h"
#include "host/file.h"
#include "report/json_rows.h"
#include "report/metric_names.h"

namespace braid::inline report {
namespace {

// Between sampler and trainer. Rounding is below 1e-5, 5e-5 on a GPU; there a row's bits depend on
// its batch, and in 16 bits up to 0.04 was seen.
constexpr double kMostMismatch = 1e-3;
constexpr double kMostMismatchOfHalves = 0.1;
constexpr double kIdleGroups = 0.8;  // share of groups that teach nothing
constexpr double kManyCut = 0.5;     // share of responses that were cut off
constexpr double kNoEntropy = 0.02;  // nats per token
constexpr double kFarOff = 1.5;      // measured over predicted step
constexpr double kKlJump = 1;        // nats, from one step to the next; good runs stay below 0.4
constexpr double kStill = 0.01;      // nats: the policy is what it was
constexpr size_t kFewRows = 4;       // fewer say little about a trend
constexpr size_t kRowsToMove = 20;   // fewer need not move anything

// The text of a file of the run's folder; "" where there is none.
Result<std::string> text_of(const std::string& folder, const std::string& name) {
  const std::string path = join_path(folder, name);
  return path_exists(path) ? read_file(path) : Result<std::string>(std::string());
}

Result<std::vector<Json>> rows_of(const std::string& folder, const std::string& name) {
  BRAID_ASSIGN(const std::string text, text_of(folder, name));
  return parse_rows(text, join_path(folder, name));
}

// Null where there is none.
Result<Json> json_of(const std::string& folder, const std::string& name) {
  BRAID_ASSIGN(const std::string text, text_of(folder, name));
  return text.empty() ? Result<Json>(Json()) : parse_json(text, join_path(folder, name));
}

// What config.yaml says at the keys, one within the other; "" where it does not say.
std::string config_value(const std::string& config, const std::vector<std::string>& keys) {
  const Result<YamlNode> root = parse_yaml(config, "config.yaml");
  const YamlNode* at = root.ok() ? &*root : nullptr;
  for (const std::string& key : keys)
    if (at != nullptr) at = at->find(key);
  return at == nullptr ? "" : at->scalar;
}

double most_mismatch(const RunRecord& run) {
  const std::string dtype = config_value(run.config, {"model", "dtype"});
  const bool halves = dtype == "bf16" || dtype == "f16";
  const bool on_gpu = config_value(run.config, {"device"}).rfind("cuda", 0) == 0;
  return halves && on_gpu ? kMostMismatchOfHalves : kMostMismatch;
}

// The mean of a metric over a part of the rows that have it, from `begin` to `end` as shares.
std::optional<double> mean_of(const RunRecord& run, const std::string& metric, double begin,
                              double end) {
  std::vector<double> values;
  for (const Json& row : run.metrics)
    if (const auto found = row.find(metric); found != row.end() && found->is_number())
      values.push_back(found->get<double>());
  if (values.size() < kFewRows) return std::nullopt;
  const auto size = static_cast<double>(values.size());
  const auto from = values.begin() + static_cast<int64_t>(size * begin);
  const auto to = values.begin() + static_cast<int64_t>(std::ceil(size * end));
  double sum = 0;
  for (auto at = from; at != to; ++at) sum += *at;
  return sum / static_cast<double>(to - from);
}

std::optional<double> last_quarter(const RunRecord& run, const std::string& metric) {
  return mean_of(run, metric, 0.75, 1);
}

constexpr const char* kKlMetric = "kl/ref_k1";

std::string rounded(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", number);
  return text;
}

double most_of(const RunRecord& run, const std::string& metric) {
  double most = 0;
  for (const Json& row : run.metrics) {
    const auto found = row.find(metric);
    if (found != row.end() && found->is_number()) most = std::max(most, found->get<double>());
  }
  return most;
}

std::optional<Finding> first_not_finite(const RunRecord& run) {
  for (const Json& row : run.metrics)
    for (const auto& [name, value] : row.items())
      if (value.is_null()) return Finding{name, cat("not finite in step ", row.value("step", -1))};
  return std::nullopt;
}

void find_in_numbers(const RunRecord& run, std::vector<Finding>* out) {
  const std::string mismatch = "mismatch/logprob_abs_max";
  if (const double most = most_of(run, mismatch); most > most_mismatch(run))
    out->push_back({mismatch, cat("up to ", rounded(most),
                                  ": sampler and trainer disagree about the same tokens, so that "
                                  "no other number means what it says")});
  if (const auto first = first_not_finite(run)) out->push_back(*first);
  if (!run.nonfinite.empty())
    out->push_back({"skipped", cat("updates were refused for numbers that are not finite; their "
                                   "batches: ",
                                   join(run.nonfinite, ", "))});
}

// The first step in which the policy went far from the reference at once: what follows, idle groups
// and endless responses, follows from it.
std::optional<Finding> kl_jump(const RunRecord& run) {
  std::optional<double> before;
  for (const Json& row : run.metrics) {
    const auto found = row.find(kKlMetric);
    if (found == row.end() || !found->is_number()) continue;
    const double kl = found->get<double>();
    if (before && kl - *before > kKlJump)
      return Finding{kKlMetric, cat("jumped by ", rounded(kl - *before), " nats in step ",
                                    row.value("step", int64_t{-1}),
                                    ": updates are too large; a lower learning rate")};
    before = kl;
  }
  return std::nullopt;
}

// A reward that does not rise while the policy stays where it was.
std::optional<Finding> stands_still(const RunRecord& run) {
  if (run.metrics.size() < kRowsToMove) return std::nullopt;
  const auto kl = last_quarter(run, kKlMetric);
  const auto early = mean_of(run, "reward/raw_mean", 0, 0.25);
  const auto late = last_quarter(run, "reward/raw_mean");
  if (!kl || !early || !late || *kl >= kStill || *late > *early + kStill * std::abs(*early))
    return std::nullopt;
  return Finding{kKlMetric, cat(rounded(*kl),
                                " nats late, and the reward does not rise: nothing moves; a higher "
                                "learning rate, or more steps")};
}

// Where nothing went wrong before: groups and responses that say something about the task.
void find_in_groups(const RunRecord& run, std::vector<Finding>* out) {
  if (const auto idle = last_quarter(run, "adv/zero_std_frac"); idle && *idle > kIdleGroups)
    out->push_back({"adv/zero_std_frac",
                    cat(rounded(100 * *idle),
                        " % of the groups have equal rewards and teach "
                        "nothing: the task is too easy or too hard; take other data or more "
                        "samples per prompt")});
  if (const auto cut = last_quarter(run, "length/truncated_frac"); cut && *cut > kManyCut)
    out->push_back({"length/truncated_frac",
                    cat(rounded(100 * *cut),
                        " % of the responses are cut off: raise "
                        "rollout.max_response_length or set reward_total.missing_eos_penalty")});
}

void find_in_learning(const RunRecord& run, std::vector<Finding>* out) {
  const auto jump = kl_jump(run);
  if (jump) out->push_back(*jump);
  if (const auto still = stands_still(run)) out->push_back(*still);
  if (!jump) find_in_groups(run, out);
  if (const auto entropy = last_quarter(run, "policy/entropy"); entropy && *entropy < kNoEntropy)
    out->push_back({"policy/entropy", cat(rounded(*entropy),
                                          " nats a token: the policy hardly tries anything; a "
                                          "lower learning rate or a higher algorithm.kl.coef")});
  const auto early = mean_of(run, "reward/raw_mean", 0, 0.25);
  const auto late = last_quarter(run, "reward/raw_mean");
  if (early && late && *late < *early)
    out->push_back(
        {"reward/raw_mean", cat("fell from ", rounded(*early), " in the first quarter to ",
                                rounded(*late), " in the last")});
  const auto explained = last_quarter(run, "critic/explained_var");
  if (explained && *explained <= 0)
    out->push_back(
        {"critic/explained_var", cat(rounded(*explained),
                                     ": the critic does not help; critic.warmup_steps or "
                                     "another learning rate")});
}

void find_in_prediction(const RunRecord& run, std::vector<Finding>* out) {
  if (!run.predicted.is_object() || !run.predicted.contains("step")) return;
  const Json& step = run.predicted["step"];
  const double predicted = step.value("predicted_s", 0.0), measured = step.value("measured_s", 0.0);
  if (predicted <= 0 || measured < kFarOff * predicted) return;
  const bool profiled = !config_value(run.config, {"cluster", "profile"}).empty();
  out->push_back({"time/step",
                  cat("a step takes ", rounded(measured), " s, predicted were ", rounded(predicted),
                      profiled ? " s: cluster.profile was measured on another machine, or one of "
                                 "the two beside other work; measure it again"
                               : " s: the prices are not this machine's; 'braid profile' measures "
                                 "them")});
}

// The parts of an absolute path, "/" first, without what "." and ".." mean; of a path that is none
// itself.
std::vector<std::string> parts_of_path(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> out;
  for (const auto& part : std::filesystem::absolute(folder, error).lexically_normal())
    if (!part.empty()) out.push_back(part);
  return error || out.empty() ? std::vector<std::string>{folder} : out;
}

std::string last_parts(const std::vector<std::string>& parts, size_t count) {
  std::filesystem::path out;
  for (size_t i = parts.size() - count; i < parts.size(); ++i) out /= parts[i];
  return out;
}

// "; runs here: FOLDER/a, FOLDER/b" of a folder with such; else "".
std::string runs_below(const std::string& folder) {
  std::vector<std::string> out;
  const Result<std::vector<std::string>> names = list_folder(folder);
  for (size_t i = 0; names.ok() && i < names->size(); ++i)
    if (const std::string run = join_path(folder, (*names)[i]);
        path_exists(join_path(run, "metrics.jsonl")))
      out.push_back(run);
  return out.empty() ? "" : cat("; runs here: ", join(out, ", "));
}

}  // namespace

std::vector<std::string> names_apart(const std::vector<std::string>& folders) {
  std::vector<std::vector<std::string>> paths;
  for (const std::string& folder : folders) paths.push_back(parts_of_path(folder));
  std::vector<std::string> out;
  for (const auto& path : paths) {
    size_t count = 1;
    const auto shared = [&](const auto& other) {
      return other != path && other.size() >= count &&
             std::equal(path.end() - static_cast<int64_t>(count), path.end(),
                        other.end() - static_cast<int64_t>(count));
    };
    while (count < path.size() && std::any_of(paths.begin(), paths.end(), shared)) ++count;
    out.push_back(last_parts(path, count));
  }
  return out;
}

Result<std::vector<RunRecord>> read_runs(const std::vector<std::string>& folders) {
  const std::vector<std::string> names = names_apart(folders);
  std::vector<RunRecord> out;
  for (size_t i = 0; i < folders.size(); ++i) {
    if (std::find(names.begin(), names.begin() + static_cast<int64_t>(i), names[i]) !=
        names.begin() + static_cast<int64_t>(i))
      return invalid_input(cat(folders[i], ": is given twice"));
    BRAID_ASSIGN(RunRecord run, read_run(folders[i]));
    run.name = names[i];
    out.push_back(std::move(run));
  }
  return out;
}

Result<RunRecord> read_run(const std::string& folder) {
  RunRecord out;
  const std::string path =
      folder.size() > 1 && folder.back() == '/' ? folder.substr(0, folder.size() - 1) : folder;
  out.name = names_apart({folder}).front();
  if (!is_folder(path)) return Status(Code::kNotFound, cat(folder, ": there is no such folder"));
  BRAID_ASSIGN(out.metrics, rows_of(path, "metrics.jsonl"));
  if (out.metrics.empty())
    return Status(Code::kNotFound, cat(folder,
                                       ": no row of metrics.jsonl; give the folder of a run "
                                       "(run.dir/run.name) that has completed a step",
                                       runs_below(path)));
  BRAID_ASSIGN(const std::string renamed, text_of(path, kMetricNamesFile));
  BRAID_TRY(restore_names(renamed, join_path(path, kMetricNamesFile), &out.metrics));
  BRAID_ASSIGN(out.samples, rows_of(path, "samples.jsonl"));
  BRAID_ASSIGN(out.ranks, rows_of(path, "ranks.jsonl"));
  BRAID_ASSIGN(out.warnings, rows_of(path, "warnings.jsonl"));
  BRAID_ASSIGN(out.config, text_of(path, "config.yaml"));
  BRAID_ASSIGN(out.predicted, json_of(path, "predicted.json"));
  BRAID_ASSIGN(out.about, json_of(path, "about.json"));
  BRAID_ASSIGN(const std::vector<std::string> names, list_folder(path));
  for (const std::string& name : names)
    if (name.rfind("nonfinite_step_", 0) == 0) out.nonfinite.push_back(name);
  out.total_steps = std::atoll(config_value(out.config, {"train", "total_steps"}).c_str());
  return out;
}

bool complete(const RunRecord& run) {
  return run.total_steps > 0 && run.metrics.back().value("step", int64_t{0}) + 1 >= run.total_steps;
}

std::vector<Finding> findings(const RunRecord& run) {
  std::vector<Finding> out;
  find_in_numbers(run, &out);
  find_in_learning(run, &out);
  find_in_prediction(run, &out);
  return out;
}

std::vector<std::string> warning_texts(const RunRecord& run) {
  std::vector<std::string> out;
  for (const Json& row : run.warnings)
    if (std::string text = row.value("text", "");
        std::find(out.begin(), out.end(), text) == out.end())
      out.push_back(std::move(text));
  return out;
}

std::vector<FindingLimit> finding_limits() {
  return {
      {"mismatch/logprob_abs_max, the most of all steps",
       cat("above ", format_double(kMostMismatch), ", in 16 bits on a GPU above ",
           format_double(kMostMismatchOfHalves))},
      {"any metric", "not finite"},
      {"updates", "refused for numbers that are not finite"},
      {"kl/ref_k1, from one step to the next", cat("up by more than ", format_double(kKlJump),
                                                   " nat; groups and cut responses are not named "
                                                   "then")},
      {"kl/ref_k1, late, where the reward does not rise",
       cat("below ", format_double(kStill), " nats after ", kRowsToMove, " steps")},
      {"adv/zero_std_frac, late", cat("above ", format_double(kIdleGroups))},
      {"length/truncated_frac, late", cat("above ", format_double(kManyCut))},
      {"policy/entropy, late", cat("below ", format_double(kNoEntropy), " nats a token")},
      {"reward/raw_mean", "late below early"},
      {"critic/explained_var, late", "0 or below"},
      {"measured step by predicted step, of runs with a plan",
       cat(format_double(kFarOff), " or above")}};
}

}  // namespace braid::inline report
