#include "foreign/foreign.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "foreign/openrlhf/openrlhf.h"
#include "foreign/settings.h"
#include "foreign/verl/verl.h"
#include "plan/make_problem.h"

namespace braid::inline foreign {

const std::vector<Framework>& frameworks() {
  static const std::vector<Framework> all = {verl_framework(), openrlhf_framework()};
  return all;
}

Result<const Framework*> find_framework(const std::string& name, std::vector<std::string> others) {
  std::vector<std::string> names = std::move(others);
  for (const Framework& framework : frameworks()) {
    if (name == framework.name) return &framework;
    names.push_back(framework.name);
  }
  return invalid_input(cat("'", name, "' is no framework known here", did_you_mean(name, names),
                           "; known: ", join(names, ", ")));
}

namespace {

// Without Hydra's leading "+" or "++".
std::string override_key(const std::string& item) {
  const size_t begin = std::min(item.find_first_not_of('+'), item.size());
  const size_t equals = std::max(begin, std::min(item.find('='), item.size()));
  return item.substr(begin, equals - begin);
}

}  // namespace

Status add_overrides(const std::vector<std::string>& overrides, ForeignKeys* keys) {
  for (const std::string& item : overrides) {
    const size_t equals = item.find('=');
    if (equals == std::string::npos || equals == 0)
      return invalid_input(cat("'", item, "' is no override; write key=value"));
    (*keys)[override_key(item)] = item.substr(equals + 1);
  }
  return ok_status();
}

Status check_override_names(const KeyReport& report, const std::vector<std::string>& overrides,
                            const Framework& framework) {
  std::vector<std::string> known;
  for (const ForeignKeyInfo& row : framework.table()) known.push_back(row.key);
  for (const std::string& item : overrides) {
    const std::string key = override_key(item);
    if (std::find(report.unknown.begin(), report.unknown.end(), key) == report.unknown.end())
      continue;
    const std::string near = *std::min_element(
        known.begin(), known.end(), [&](const std::string& a, const std::string& b) {
          return edit_distance(key, a) < edit_distance(key, b);
        });
    if (edit_distance(key, near) <= kTypingSlip)
      return invalid_input(cat("unknown key '", key, "' (did you mean '", near, "'?)"));
    return invalid_input(
        cat("unknown key '", key, "': no plan depends on it; the nearest key is '", near, "'"));
  }
  return ok_status();
}

Result<ForeignKeys> with_config_file(const Framework& framework, const std::string& text,
                                     const std::string& where, const ForeignKeys& launch) {
  BRAID_ASSIGN(const ForeignKeys file, framework.parse(text, where));
  ForeignKeys keys = launch;
  for (const auto& [key, value] : file)
    if (key.rfind("hydra.", 0) != 0 && key.rfind("defaults", 0) != 0) keys.emplace(key, value);
  // A file that builds on another names it.
  const bool megatron = text.find("- ppo_megatron_trainer") != std::string::npos;
  if (const auto name = keys.find("--config-name"); name != keys.end())
    name->second = megatron ? "ppo_megatron_trainer" : "ppo_trainer";
  return keys;
}

std::vector<std::string> diff_keys(const ExportedConfig& a, const ExportedConfig& b) {
  const ForeignKeys left(a.keys.begin(), a.keys.end()), right(b.keys.begin(), b.keys.end());
  ForeignKeys all = left;
  all.insert(right.begin(), right.end());
  const auto value_of = [](const ForeignKeys& keys, const std::string& key) {
    const auto found = keys.find(key);
    return found == keys.end() ? std::string("(unset)") : found->second;
  };
  std::vector<std::string> lines;
  for (const auto& [key, value] : all)
    if (value_of(left, key) != value_of(right, key))
      lines.push_back(cat(key, ": ", value_of(left, key), " -> ", value_of(right, key)));
  return lines;
}

std::string config_text(const Framework& framework, const ExportedConfig& config) {
  const bool flags = framework.flag_prefix[0] != '\0';
  std::string out;
  for (const auto& [key, value] : config.keys) {
    if (!flags)
      out += cat(key, "=", value, "\n");
    else if (value == "True")
      out += cat(framework.flag_prefix, key, "\n");
    else
      out += cat(framework.flag_prefix, key, " ", value, "\n");
  }
  return out;
}

namespace {
// Once, however many roles have the same model.
void add_note(const std::string& note, std::vector<std::string>* notes) {
  if (std::find(notes->begin(), notes->end(), note) == notes->end()) notes->push_back(note);
}
}  // namespace

Result<ModelSize> model_of_path(const std::string& key, const std::string& path,
                                const ImportOptions& options, std::vector<std::string>* notes) {
  if (const auto stated = options.model_sizes.find(key); stated != options.model_sizes.end())
    return resolve_model_size(stated->second, options.read).at(cat("--model-size ", key));
  if (path.empty())
    return invalid_input(
        cat(key, ": is missing; name the model, or --model-size ", key, "=qwen3-8b"));
  if (options.read)
    if (const auto text = options.read(path + "/config.json"); text.ok()) {
      BRAID_ASSIGN(ModelSize model, parse_model_size(*text, path + "/config.json"));
      if (!model.unknown_architecture.empty()) add_note(assumption_note(model), notes);
      return model;
    }
  auto found = find_model_by_any_name(path);
  if (found.ok()) {
    const std::string note = cat(key, "=", path, " is planned as ", found->name);
    if (found->name != path) add_note(note, notes);
    if (const std::string parts = unpriced_parts(path); !parts.empty())
      add_note(cat(key, "=", path, ": ", parts), notes);
    return found;
  }
  return invalid_input(cat(key, ": '", path,
                           "' is neither a folder with a config.json nor a known "
                           "model (",
                           found.status().message(), "); say --model-size ", key,
                           "=NAME or --model-size ", key, "=config.json"));
}

bool matches(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, tried = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++, tried = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1, t = ++tried;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

namespace {

const KeyFamily* family_of(const std::vector<KeyFamily>& families, const std::string& key) {
  for (const KeyFamily& family : families)
    if (matches(family.pattern, key)) return &family;
  return nullptr;
}

// Whether a family names the key without a wildcard, or a slip of the keyboard is out of question.
bool is_slip(const std::string& key, const KeyFamily& family, const std::set<std::string>& read) {
  if (family.pattern == key) return false;
  return std::any_of(read.begin(), read.end(), [&](const std::string& known) {
    const auto difference = static_cast<int>(known.size()) - static_cast<int>(key.size());
    return std::abs(difference) <= kTypingSlip && edit_distance(known, key) <= kTypingSlip;
  });
}

}  // namespace

KeyReport account(const ForeignKeys& keys, const KeyKnowledge& knowledge) {
  KeyReport report;
  for (const auto& [key, value] : keys) {
    if (key.empty() || key[0] == '-') continue;  // arguments of the command
    if (knowledge.read.count(key) > 0) {
      report.read.push_back(key);
      continue;
    }
    const KeyFamily* priced = family_of(knowledge.not_priced, key);
    const KeyFamily* family = priced ? priced : family_of(knowledge.without_effect, key);
    if (family == nullptr || is_slip(key, *family, knowledge.read))
      report.unknown.push_back(key);
    else
      (priced ? report.not_priced : report.without_effect).push_back({key, family->why});
  }
  return report;
}

Result<Cluster> imported_cluster(const ImportOptions& options, int64_t nodes, int64_t per_node) {
  if (options.gpu.empty())
    return invalid_input(
        "the device is not part of this configuration; name it with --gpu, such as h100-80g");
  BRAID_ASSIGN(const GpuSpec gpu, find_gpu(options.gpu));
  constexpr int64_t kMostNodes = 100000;
  if (nodes < 1 || nodes > kMostNodes)
    return invalid_input(cat("the number of nodes must be 1 to ", kMostNodes, ", is ", nodes));
  if (per_node < 1 || per_node > kMaxDevicesPerNode)
    return invalid_input(
        cat("devices of a node must be 1 to ", kMaxDevicesPerNode, ", are ", per_node));
  return make_cluster(gpu, static_cast<int>(nodes), static_cast<int>(per_node));
}

Status set_lengths(const ImportOptions& options, const LengthLimits& limits,
                   PlanningProblem* problem, std::vector<std::string>* notes) {
  Workload& work = problem->workload;
  BRAID_TRY(check_sequences(work));
  work.prompt.mean = static_cast<double>(limits.prompt);
  work.response.mean = static_cast<double>(limits.response);
  if (options.prompt) work.prompt = *options.prompt;
  if (options.response) work.response = *options.response;
  BRAID_TRY(check_length_limit(work.prompt, "--prompt-length", limits.prompt, limits.prompt_key));
  BRAID_TRY(
      check_length_limit(work.response, "--response-length", limits.response, limits.response_key));
  work.prompt_limit = limits.prompt, work.response_limit = limits.response;
  if (work.prompt.longest == 0) work.prompt.longest = limits.prompt;
  if (work.response.longest == 0) work.response.longest = limits.response;
  if (!options.response)
    notes->push_back(cat("response lengths are not known: all ", limits.response,
                         " tokens, the longest allowed; give the real ones for real times"));
  return ok_status();
}

namespace {

struct ServingBytes {
  double device = 0, weights = 0, kv_per_token = 0;
};

ServingBytes serving_bytes(const PlanningProblem& problem, const Call& generate,
                           const Strategy& s) {
  const ModelSize& size = model_of(problem, generate.role).spec;
  const double width = precision_bytes(model_of(problem, generate.role).precision);
  const double device = gpu_of(problem.cluster, DeviceId{0}).hbm_bytes;
  const auto routed = static_cast<double>(routed_expert_params(size));
  const double held = (static_cast<double>(total_params(size)) - routed) / s.tp +
                      routed / (static_cast<double>(s.ep) * expert_tp(s));
  return {device, width * held / s.pp,
          kv_bytes_per_token(size, width) / static_cast<double>(kv_cache_parts(size, s.tp)) / s.pp};
}

}  // namespace

int64_t kv_tokens_of_share(const PlanningProblem& problem, const Call& generate,
                           const Strategy& strategy, double share) {
  const ServingBytes bytes = serving_bytes(problem, generate, strategy);
  const double room = share * bytes.device - bytes.weights;
  return room <= 0 ? 0 : static_cast<int64_t>(room / bytes.kv_per_token);
}

double share_of_kv_tokens(const PlanningProblem& problem, const Call& generate,
                          const Strategy& strategy, int64_t tokens) {
  const ServingBytes bytes = serving_bytes(problem, generate, strategy);
  const double used = bytes.weights + static_cast<double>(tokens) * bytes.kv_per_token;
  return std::min(0.95, std::ceil(100 * used / bytes.device - 1e-6) / 100);
}

const Call* call_of(const Graph& graph, const std::string& role, CallKind kind) {
  for (const Call& call : graph.calls)
    if (call.role.value == role && call.kind == kind) return &call;
  return nullptr;
}

Result<ExportedText> exported_text(const std::string& framework, const PlanningProblem& problem,
                                   const ExecutionPlan& plan) {
  BRAID_ASSIGN(const Framework* found, find_framework(framework));
  const ExportedConfig exported = found->export_plan(problem, plan);
  const ForeignKeys keys(exported.keys.begin(), exported.keys.end());
  return ExportedText{config_text(*found, exported), exported.not_expressed, found->beside(keys)};
}

}  // namespace braid::inline foreign
