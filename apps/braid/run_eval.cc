// braid eval: accuracy or mean reward of a model on data.eval, and pass@k.
#include <ATen/Parallel.h>

#include <cstdio>

#include "base/json.h"
#include "commands.h"
#include "dataflow/model_spec.h"
#include "host/file.h"
#include "run_commands.h"
#include "runtime/evaluate.h"

namespace braid {
namespace {

struct EvalArguments {
  bool json = false;
  std::string samples;
};

// The policy that the configuration starts from: a folder, or random weights.
Result<std::unique_ptr<Model>> load_policy(const Config& config) {
  ModelOptions options;
  options.dtype = config.model.dtype == "bf16" ? at::kBFloat16 : at::kFloat;
  options.seed = static_cast<uint64_t>(config.train.seed);
  options.device = config.device == "cpu" ? at::Device(at::kCPU) : at::Device(config.device);
  if (!config.model.path.empty()) return load_model(config.model.path, {options, false});
  if (config.model.config.empty())
    return invalid_input("model.path: no model given; name a Hugging Face folder");
  BRAID_ASSIGN(const std::string text, read_file(config.model.config));
  BRAID_ASSIGN(const ModelSpec spec, parse_model_spec(text, config.model.config));
  return make_model(spec, options);
}

Status evaluate(const EvalArguments& arguments, const std::vector<std::string>& inputs) {
  BRAID_ASSIGN(const LoadedConfig loaded, load_config_arguments(inputs));
  const Config& config = loaded.config;
  if (config.train.threads > 0) at::set_num_threads(static_cast<int>(config.train.threads));
  BRAID_ASSIGN(const std::unique_ptr<Evaluator> evaluator, Evaluator::create(config));
  BRAID_ASSIGN(const std::unique_ptr<Model> policy, load_policy(config));
  BRAID_ASSIGN(const EvalReport report, evaluator->run(*policy));
  if (arguments.json) std::printf("%s\n", Json(report.metrics).dump().c_str());
  for (const auto& [name, value] : report.metrics)
    if (!arguments.json) std::printf("%-24s %.6g\n", name.c_str(), value);
  if (arguments.samples.empty()) return ok_status();
  std::string text;
  for (const Json& row : report.samples)
    text += row.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  return write_file_atomic(arguments.samples, text);
}

Action define_eval(CLI::App& app) {
  auto arguments = std::make_shared<EvalArguments>();
  take_config_inputs(app);
  app.add_flag("--json", arguments->json, "print the metrics as one JSON object");
  app.add_option("--samples", arguments->samples, "write every response with its rewards here");
  return [arguments, &app] { return evaluate(*arguments, app.remaining()); };
}

}  // namespace

extern const Command kEvalCommand{"eval", "score a model's responses to data.eval", define_eval};

}  // namespace braid
