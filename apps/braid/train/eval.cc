// braid eval: accuracy or mean reward of a model on data.eval, and pass@k.
#include <ATen/Parallel.h>

#include <cstdio>

#include "base/json.h"
#include "base/log.h"
#include "braid/data/inputs.h"
#include "braid/engine_options.h"
#include "braid/outputs.h"
#include "host/file.h"
#include "launch/job.h"
#include "scoring/evaluate.h"
#include "weights/check_tokenizers.h"

namespace braid {
namespace {

Status evaluate(const EvalArguments& arguments, const std::vector<std::string>& inputs) {
  BRAID_TRY(check_outputs({{"--samples", arguments.samples}}));
  BRAID_ASSIGN(const LoadedConfig loaded, load_config_arguments(inputs));
  BRAID_ASSIGN(const Config config, local_config(loaded.config));
  if (states_plan(config))
    log_warning(
        "plan, placement, parallel: without effect, 'braid eval' is one process; eval.every_steps "
        "and eval.at_start evaluate on the ranks of 'braid train'");
  if (config.train.threads > 0) at::set_num_threads(static_cast<int>(config.train.threads));
  std::vector<std::string> notes;
  BRAID_TRY(check_reward_tokenizers(config, &notes));
  for (const std::string& note : notes) log_warning(note);
  Roles roles;
  BRAID_ASSIGN(roles["actor"].model, load_policy(config));
  BRAID_ASSIGN(const RewardModels models, load_reward_models(config, roles));
  BRAID_ASSIGN(const std::unique_ptr<Evaluator> evaluator, Evaluator::create(config));
  BRAID_ASSIGN(const EvalReport report, evaluator->run(*roles["actor"].model, models));
  if (arguments.json) std::printf("%s\n", Json(report.metrics).dump().c_str());
  for (const auto& [name, value] : report.metrics)
    if (!arguments.json) std::printf("%-24s %.6g\n", name.c_str(), value);
  if (arguments.samples.empty()) return ok_status();
  std::string text;
  for (const Json& row : report.samples)
    text += row.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  return write_file_atomic(arguments.samples, text);
}

}  // namespace

extern const Command kEvalCommand = kEval.with(evaluate);

}  // namespace braid
