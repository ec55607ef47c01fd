#include "braid/engine_options.h"

#include "braid/config_inputs.h"

namespace braid {
namespace {

void add_sampling(CLI::App& app, GenerateOptions& options) {
  app.add_option("--max-new-tokens", options.max_new_tokens, "tokens of a response at most");
  app.add_option("--temperature", options.temperature, "0 = greedy");
  app.add_option("--top-p", options.top_p, "smallest set of tokens with this probability; 1 = off");
  app.add_option("--top-k", options.top_k, "most probable tokens kept; 0 = off");
  app.add_option("--min-p", options.min_p, "least probability, of the largest one; 0 = off");
  app.add_option("--repetition-penalty", options.repetition_penalty, "1 = off");
  app.add_option("--seed", options.seed, "of the random numbers");
  app.add_flag("--ignore-eos", options.ignore_eos, "go on after an end-of-sequence token");
}

void add_model_use(CLI::App& app, GenerateOptions& options) {
  app.add_option("--stop", options.stop, "text that ends a response; repeatable")
      ->allow_extra_args(false);
  app.add_option("--threads", options.threads, "0 = as many as the machine has cores");
  app.add_option("--template-date", options.template_date,
                 "YYYY-MM-DD that chat templates see as today");
  app.add_option("--dtype", options.dtype, "of weights and cache")
      ->check(CLI::IsMember({"f32", "bf16"}));
  app.add_option("--device", options.device, "cpu | cuda | cuda:N");
}

}  // namespace

void add_train_options(CLI::App& app, TrainArguments& arguments) {
  take_config_inputs(app);
  app.add_flag("--print-program", arguments.print_program, "print the instruction list and stop");
  app.add_flag("--dry-run", arguments.dry_run,
               "check everything but weights and print the batch arithmetic");
  app.add_flag("--smoke", arguments.smoke,
               "two small steps with tiny random models, to see that everything that the "
               "configuration names works; says what it replaces");
  app.add_option("--order", arguments.order,
                 "append the instructions that each step executes, in order, to this file");
}

void add_eval_options(CLI::App& app, EvalArguments& arguments) {
  take_config_inputs(app);
  app.add_flag("--json", arguments.json, "print the metrics as one JSON object");
  app.add_option("--samples", arguments.samples, "write every response with its rewards here");
  app.add_option("--against", arguments.against,
                 "another model (Hugging Face folder) on the same prompts and seeds: a table with "
                 "the differences; repeatable")
      ->allow_extra_args(false);
}

void add_export_options(CLI::App& app, ExportArguments& arguments) {
  app.allow_extras();
  app.add_option("checkpoint", arguments.checkpoint,
                 "a checkpoint's folder: RUN/checkpoints/step-N")
      ->required();
  app.add_option("out", arguments.out, "gets a Hugging Face folder for each trained role")
      ->required();
  app.footer(
      "Further arguments, as key=value, replace options of the checkpoint: model.path of a "
      "base model that was moved, lora.export_as, export.dtype, tokenizer.path.");
}

void add_doctor_options(CLI::App& app, DoctorOptions& options) {
  app.add_option("--dir", options.folder, "where runs will be written (run.dir)");
  app.add_option("--time-limit", options.time_limit_s, "seconds after which everything ends")
      ->check(CLI::Range(1, 3600));
}

void add_generate_options(CLI::App& app, GenerateOptions& options) {
  app.add_option("MODEL", options.model, "Hugging Face folder")->required();
  app.add_option("--prompt", options.prompt, "one prompt; its response is streamed");
  app.add_option("--prompts", options.prompts,
                 "JSON lines {\"prompt\"}, {\"messages\"} or {\"ids\"}; - is standard input");
  app.add_flag("--json", options.json, "one JSON object per prompt, in input order");
  add_sampling(app, options);
  add_model_use(app, options);
  app.add_option("--max-concurrent", options.max_concurrent, "sequences in flight");
  app.add_option("--kv-budget-tokens", options.kv_budget_tokens,
                 "tokens of the cache; 0 = as many as --max-concurrent sequences need");
}

void add_chat_options(CLI::App& app, ChatArguments& arguments) {
  app.add_option("MODEL", arguments.generate.model, "Hugging Face folder with a chat template")
      ->required();
  app.add_option("--system", arguments.system, "message that each conversation begins with");
  add_sampling(app, arguments.generate);
  add_model_use(app, arguments.generate);
  app.footer(
      "Each line of the standard input is a turn; /reset begins a new conversation, /exit or the "
      "end of the input ends.");
}

void add_score_options(CLI::App& app, ScoreOptions& options) {
  app.add_option("MODEL", options.model, "Hugging Face folder")->required();
  app.add_option("--input", options.input,
                 "JSON lines {\"ids\": [...]} or {\"text\": ...}; - is standard input")
      ->required();
  app.add_option("--dtype", options.dtype, "f32 or bf16 arithmetic")
      ->check(CLI::IsMember({"f32", "bf16"}));
  app.add_option("--device", options.device, "cpu | cuda | cuda:N");
  app.add_flag("--json", options.json, "write JSON lines with a number per token");
}

void add_profile_options(CLI::App& app, ProfileOptions& options) {
  app.add_option("MODEL", options.model, "folder with config.json; weights are not needed")
      ->required();
  app.add_option("--out", options.out, "profile file, for cluster.profile (profile.json)");
  app.add_option("--device", options.device, "cpu | cuda | cuda:N (cpu)");
  app.add_option("--dtype", options.dtype, "f32 | bf16, as model.dtype of the runs to price (f32)");
  app.add_option("--ranks", options.ranks,
                 "processes of this machine that measure side by side, as many as training has")
      ->check(CLI::Range(1, 64));
  const auto add_sizes = [&](const char* name, std::vector<int64_t>* sizes, const char* help) {
    app.add_option(name, *sizes, help)->delimiter(',');
  };
  add_sizes("--tokens", &options.tokens,
            "tokens of a pass; if left out 64 to 1024, on a GPU 256 to 16384");
  add_sizes("--lengths", &options.lengths, "tokens of its sequences; 64 to 1024, on a GPU to 4096");
  add_sizes("--batches", &options.batches, "sequences of a decode step; 1 to 64, on a GPU to 1024");
  add_sizes("--contexts", &options.contexts,
            "tokens in their caches; 128 to 2048, on a GPU to 4096");
  add_sizes("--tp", &options.tp,
            "tensor-parallel degrees: the share of a rank of each is measured too");
  app.add_option("--seconds", options.seconds, "spent on each measurement at least (0.05)")
      ->check(CLI::Range(0.0, 60.0));
  app.add_option("--threads", options.threads, "threads of libtorch; 0 = its default")
      ->check(CLI::Range(0, 1024));
}

}  // namespace braid
