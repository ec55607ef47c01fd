// The commands that compute with libtorch: their names, help and options. `braid` itself lists them
// and checks their arguments, then becomes braid-engine (engine_start.h), where train/, model/ and
// machine/ do the work: libtorch takes 0.2 s to load, and only these commands pay for it. No torch
// header here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "braid/command.h"

namespace braid {

struct TrainArguments {
  bool print_program = false;
  bool dry_run = false;
  bool smoke = false;
  std::string order;  // file
};

struct EvalArguments {
  bool json = false;
  std::string samples;
  std::vector<std::string> against;  // models beside that of the configuration
};

struct ExportArguments {
  std::string checkpoint, out;
};

struct DoctorOptions {
  std::string folder = "runs";
  unsigned time_limit_s = 20;
};

struct GenerateOptions {
  std::string model;
  std::optional<std::string> prompt;
  std::string prompts;
  bool json = false;
  // As SamplingOptions (rollout/engine.h) names them.
  int64_t max_new_tokens = 128, top_k = 0;
  double temperature = 1, top_p = 1, min_p = 0, repetition_penalty = 1;
  bool ignore_eos = false;
  uint64_t seed = 0;
  std::vector<std::string> stop;
  int threads = 0;
  int64_t max_concurrent = 256, kv_budget_tokens = 0;  // of the engine
  std::string dtype = "f32", device = "cpu";
  std::string template_date;  // that chat templates see as today; "" = the real day
};

struct ChatArguments {
  ChatArguments() { generate.max_new_tokens = 512; }
  GenerateOptions generate;
  std::string system;  // message that a conversation begins with; "" = none
};

struct ScoreOptions {
  std::string model;
  std::string input;
  std::string dtype = "f32", device = "cpu";
  bool json = false;
};

struct ProfileOptions {
  std::string model;
  std::string out = "profile.json";
  std::string device = "cpu";
  std::string dtype = "f32";
  int64_t ranks = 1;  // that measure side by side
  // Empty: as suits the device.
  std::vector<int64_t> tokens;    // of a pass
  std::vector<int64_t> lengths;   // of its sequences
  std::vector<int64_t> batches;   // sequences of a decode step
  std::vector<int64_t> contexts;  // tokens in their caches
  std::vector<int64_t> tp;        // tensor-parallel degrees whose share is measured too
  double seconds = 0.05;          // spent on each measurement at least
  int threads = 0;
};

template <typename Options>
struct EngineCommand {
  const char* name;
  const char* help;
  void (*add_options)(CLI::App& app, Options& options);

  // With the options read and the arguments that are left over (configuration inputs).
  using Act = std::function<Status(const Options&, const std::vector<std::string>& inputs)>;
  Command with(Act act) const {
    return {name, help, [add = add_options, act = std::move(act)](CLI::App& app) -> Action {
              auto options = std::make_shared<Options>();
              add(app, *options);
              return [options, act, &app] { return act(*options, app.remaining()); };
            }};
  }
};

void add_train_options(CLI::App& app, TrainArguments& arguments);
void add_eval_options(CLI::App& app, EvalArguments& arguments);
void add_export_options(CLI::App& app, ExportArguments& arguments);
void add_doctor_options(CLI::App& app, DoctorOptions& options);
void add_generate_options(CLI::App& app, GenerateOptions& options);
void add_chat_options(CLI::App& app, ChatArguments& arguments);
void add_score_options(CLI::App& app, ScoreOptions& options);
void add_profile_options(CLI::App& app, ProfileOptions& options);

inline constexpr EngineCommand<TrainArguments> kTrain{
    "train", "train with the algorithm of the configuration (docs/algorithms.md)",
    add_train_options};
inline constexpr EngineCommand<TrainArguments> kSft{
    "sft", "supervised fine-tuning: train with algorithm.name=sft (docs/own_data.md)",
    add_train_options};
inline constexpr EngineCommand<TrainArguments> kRm{
    "rm", "train a reward model: train with algorithm.name=rm (docs/algorithms.md)",
    add_train_options};
inline constexpr EngineCommand<EvalArguments> kEval{
    "eval", "score a model's responses to data.eval (docs/metrics.md)", add_eval_options};
inline constexpr EngineCommand<ExportArguments> kExport{
    "export", "turn a checkpoint into Hugging Face folders (docs/checkpoints.md)",
    add_export_options};
inline constexpr EngineCommand<DoctorOptions> kDoctor{
    "doctor", "check this machine (docs/install.md)", add_doctor_options};
inline constexpr EngineCommand<GenerateOptions> kGenerate{
    "generate", "generate responses to prompts (docs/rollout.md)", add_generate_options};
inline constexpr EngineCommand<ChatArguments> kChat{
    "chat", "talk with a model, line by line (docs/rollout.md)", add_chat_options};
inline constexpr EngineCommand<ScoreOptions> kScore{
    "score", "log-probabilities or values of given tokens (docs/models.md)", add_score_options};
inline constexpr EngineCommand<ProfileOptions> kProfile{
    "profile", "measure this machine for the planner (docs/planner.md)", add_profile_options};

}  // namespace braid
