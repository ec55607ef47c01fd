#include "interop/foreign.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "interop/openrlhf/openrlhf.h"
#include "interop/settings.h"
#include "interop/verl/verl.h"
#include "plan/make_problem.h"

namespace braid {

const std::vector<Framework>& frameworks() {
  static const std::vector<Framework> all = {verl_framework(), openrlhf_framework()};
  return all;
}

Result<const Framework*> find_framework(const std::string& name) {
  std::vector<std::string> names;
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

Status check_override_names(const Framework& framework, const std::vector<std::string>& overrides) {
  std::vector<std::string> known = framework.unplanned();
  for (const ForeignKeyInfo& row : framework.table()) known.push_back(row.key);
  for (const std::string& item : overrides) {
    const std::string key = override_key(item);
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string near = *std::min_element(
        known.begin(), known.end(), [&](const std::string& a, const std::string& b) {
          return edit_distance(key, a) < edit_distance(key, b);
        });
    if (edit_distance(key, near) <= foreign::kTypingSlip)
      return invalid_input(cat("unknown key '", key, "' (did you mean '", near, "'?)"));
    return invalid_input(
        cat("unknown key '", key, "': no plan depends on it; the nearest key is '", near, "'"));
  }
  return ok_status();
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

namespace foreign {

namespace {
// Once, however many roles have the same model.
void add_note(const std::string& note, std::vector<std::string>* notes) {
  if (std::find(notes->begin(), notes->end(), note) == notes->end()) notes->push_back(note);
}
}  // namespace

Result<ModelSize> model_of_path(const std::string& key, const std::string& path,
                                const ImportOptions& options, std::vector<std::string>* notes) {
  if (path.empty()) return invalid_input(cat(key, ": is missing; name the model"));
  if (options.read)
    if (const auto text = options.read(path + "/config.json"); text.ok()) {
      BRAID_ASSIGN(ModelSize model, parse_hf_config(*text, path + "/config.json"));
      if (!model.unknown_architecture.empty()) add_note(assumption_note(model), notes);
      return model;
    }
  auto found = find_model_by_any_name(path);
  if (found.ok()) {
    const std::string note = cat(key, "=", path, " is planned as ", found->name);
    if (found->name != path) add_note(note, notes);
    return found;
  }
  return invalid_input(cat(key, ": '", path,
                           "' is neither a folder with a config.json nor a known "
                           "model (",
                           found.status().message(), ")"));
}

void note_unplanned(const std::vector<UnplannedKey>& unplanned, const ForeignKeys& keys,
                    const std::function<std::string(const UnplannedKey&)>& value_of,
                    std::vector<std::string>* notes) {
  for (const UnplannedKey& entry : unplanned) {
    const auto found = keys.find(entry.key);
    if (found == keys.end() || found->second == "null") continue;
    const std::string planned = value_of(entry);
    if (lowered(found->second) != lowered(planned))
      notes->push_back(
          cat("not planned: ", entry.key, "=", found->second, "; planned as ", planned));
  }
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

ServingBytes serving_bytes(const PlanningProblem& problem, const Call& generate, int tp) {
  const ModelSize& size = model_of(problem, generate.role).size;
  const double width = precision_bytes(model_of(problem, generate.role).precision);
  const double device = gpu_of(problem.cluster, DeviceId{0}).hbm_bytes;
  return {device, width * static_cast<double>(total_params(size)) / tp,
          kv_bytes_per_token(size, width) / static_cast<double>(kv_cache_parts(size, tp))};
}

}  // namespace

int64_t kv_tokens_of_share(const PlanningProblem& problem, const Call& generate, int tp,
                           double share) {
  const ServingBytes bytes = serving_bytes(problem, generate, tp);
  const double room = share * bytes.device - bytes.weights;
  return room <= 0 ? 0 : static_cast<int64_t>(room / bytes.kv_per_token);
}

double share_of_kv_tokens(const PlanningProblem& problem, const Call& generate, int tp,
                          int64_t tokens) {
  const ServingBytes bytes = serving_bytes(problem, generate, tp);
  const double used = bytes.weights + static_cast<double>(tokens) * bytes.kv_per_token;
  return std::min(0.95, std::ceil(100 * used / bytes.device - 1e-6) / 100);
}

const Call* call_of(const Graph& graph, const std::string& role, CallKind kind) {
  for (const Call& call : graph.calls)
    if (call.role.value == role && call.kind == kind) return &call;
  return nullptr;
}

}  // namespace foreign
}  // namespace braid
