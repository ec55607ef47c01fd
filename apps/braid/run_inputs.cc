// What run-side commands read besides weights, and the checks of --dry-run.
#include "base/log.h"
#include "base/text.h"
#include "dataflow/model_spec.h"
#include "host/file.h"
#include "reward/reward.h"
#include "run_commands.h"

namespace braid {
namespace {

Status check_model(const Config& config) {
  const ModelConfig& model = config.model;
  if (model.path.empty() && model.config.empty())
    return invalid_input(
        "model.path: no model given; name a Hugging Face folder, or a config.json as model.config");
  const std::string file = model.path.empty() ? model.config : join_path(model.path, "config.json");
  BRAID_ASSIGN(const std::string text, read_file(file).at("model.path"));
  BRAID_ASSIGN(const ModelSpec spec, parse_model_spec(text, file));
  const int64_t length = config.data.max_prompt_length + config.rollout.max_response_length;
  if (spec.max_positions > 0 && length > spec.max_positions)
    log_warning(cat(file, ": the model has ", spec.max_positions,
                    " positions, less than data.max_prompt_length + rollout.max_response_length = ",
                    length, "; longer samples will fail"));
  return ok_status();
}

std::string counts_text(const std::string& source, const DataSet& data) {
  return cat(source, ": ", data.size(), " usable lines, ", data.dropped(), " dropped and ",
             data.truncated(), " cut as longer than data.max_prompt_length");
}

}  // namespace

DataNeed data_need(const Graph& graph) {
  for (const Call& call : graph.calls) {
    if (call.kind != CallKind::kFetch) continue;
    if (call.function == "samples") return DataNeed::kSamples;
    if (call.function == "pairs") return DataNeed::kPairs;
  }
  return DataNeed::kPrompts;
}

Result<RunData> load_run_data(const Config& config, const std::string& source, DataNeed need) {
  RunData out;
  const std::string folder =
      config.tokenizer.path.empty() ? config.model.path : config.tokenizer.path;
  const std::string file = is_folder(folder) ? join_path(folder, "tokenizer.json") : folder;
  if (!folder.empty() && path_exists(file)) {
    BRAID_ASSIGN(out.tokenizer, load_tokenizer(folder));
  } else if (!config.tokenizer.path.empty()) {
    return not_found(cat("tokenizer.path: ", file, " does not exist"));
  }
  const Tokenizer* tokenizer = out.tokenizer ? &*out.tokenizer : nullptr;
  BRAID_ASSIGN(out.data, load_data_set(source, need, tokenizer, config.data));
  return out;
}

Status check_run_inputs(const Config& config, const Graph& graph) {
  BRAID_TRY(check_model(config));
  BRAID_ASSIGN(const RunData train, load_run_data(config, config.data.train, data_need(graph)));
  log_info(counts_text(config.data.train, train.data));
  if (!config.data.eval.empty()) {
    BRAID_ASSIGN(const RunData eval, load_run_data(config, config.data.eval, DataNeed::kPrompts));
    log_info(counts_text(config.data.eval, eval.data));
  }
  if (generates(graph) && config.reward.empty())
    return invalid_input(
        "reward: the list is empty; an algorithm that generates needs at least one reward");
  BRAID_ASSIGN(const auto rewards, make_rewards(config.reward));
  for (const RewardConfig& reward : config.reward)
    if (reward.type == "model" && !path_exists(join_path(reward.path, "config.json")))
      return not_found(cat("reward '", reward_name(reward), "': ", reward.path,
                           " is not a model folder (it has no config.json)"));
  return ok_status();
}

}  // namespace braid
