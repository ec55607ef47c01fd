// Bad input of every kind, given to the program as a person gives it: each ends with one message
// that names the place, or goes on with a warning that does; never a crash, a hang or silence.
// BRAID_TEST_FULL=1 runs all of them, else a seeded sample.
#include <gmock/gmock.h>

#include <algorithm>

#include "base/rng.h"
#include "config/reference.h"
#include "host/testing.h"
#include "host/workers.h"

namespace braid {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr size_t kSampled = 24;
constexpr uint64_t kSampleSeed = 14;
constexpr size_t kWorkers = 6;  // programs at a time: one spends most of its time starting
constexpr double kDeadline_s = 120;

// Arguments of the program; {F} is the folder with the files of this suite.
struct BadInput {
  std::vector<std::string> arguments;
  std::string says;      // part of what is printed
  bool goes_on = false;  // with a warning, exit code 0
};

std::vector<std::string> dry_run(std::vector<std::string> more) {
  std::vector<std::string> out = {"train",
                                  "--dry-run",
                                  "run.dir={F}/runs",
                                  "algorithm.name=grpo",
                                  "model.config=examples/quickstart/model/config.json",
                                  "tokenizer.path=examples/quickstart/model",
                                  "data.train=task:sort_digits",
                                  "rollout.prompts_per_step=4",
                                  "rollout.samples_per_prompt=2",
                                  "rollout.max_response_length=6",
                                  "reward=[{type: rule, rule: digit_share}]"};
  for (std::string& argument : more) out.push_back(std::move(argument));
  return out;
}

BadInput refused(const std::string& key_value, const std::string& says) {
  return {dry_run({key_value}), says};
}

BadInput noted(std::vector<std::string> keys, const std::string& says) {
  return {dry_run(std::move(keys)), says, true};
}

// Values that no key of the type takes.
std::vector<std::string> wrong_values(const OptionRow& row) {
  if (row.kind != OptionRow::Kind::kLeaf) return {"x", "[1]"};
  if (row.type == "whole number")
    return {"abc",    "1.5", "[1]", "9223372036854775808",
            "{a: 1}", "'7'", "1e3", "-9223372036854775809"};
  if (row.type == "number") return {"abc", "nan", "inf", "[1]", "1e400", "{a: 1}", "1,5"};
  if (row.type == "true or false") return {"maybe", "2", "[true]", "{a: 1}"};
  if (row.type.rfind("list", 0) == 0) return {"{a: 1}"};
  if (row.allowed.find('|') != std::string::npos) return {"no-such-choice"};
  return row.type == "text" ? std::vector<std::string>{"[1]", "{a: 1}"}
                            : std::vector<std::string>();
}

// Every key of the configuration with values of a wrong type.
std::vector<BadInput> wrong_types() {
  std::vector<BadInput> out;
  for (const OptionRow& row : option_rows()) {
    if (row.path.find("[]") != std::string::npos) continue;
    if (row.kind == OptionRow::Kind::kListOfGroups) continue;
    for (const std::string& value : wrong_values(row))
      out.push_back(refused(cat(row.path, "=", value), row.path));
  }
  return out;
}

std::vector<BadInput> bad_numbers() {
  return {
      refused("rollout.prompts_per_step=1000000000000", "rollout.prompts_per_step"),
      refused("rollout.prompts_per_step=9223372036854775807", "rollout.prompts_per_step"),
      refused("rollout.prompts_per_step=0", "rollout.prompts_per_step"),
      refused("rollout.prompts_per_step=-4", "rollout.prompts_per_step"),
      refused("rollout.samples_per_prompt=16000000", "sequences of a step"),
      refused("rollout.samples_per_prompt=1", "rollout.samples_per_prompt"),
      refused("rollout.max_response_length=9223372036854775807", "rollout.max_response_length"),
      refused("rollout.max_response_length=100000", "128 positions"),
      refused("rollout.min_response_length=7", "rollout.min_response_length"),
      refused("rollout.temperature=0", "rollout.temperature"),
      refused("rollout.top_p=0.9", "rollout.top_p"),
      refused("rollout.top_p=1.1", "rollout.top_p"),
      refused("rollout.top_k=50", "rollout.top_k"),
      refused("rollout.min_p=0.1", "rollout.min_p"),
      refused("rollout.repetition_penalty=1.1", "rollout.repetition_penalty"),
      refused("rollout.stop=['']", "rollout.stop"),
      refused("rollout.in_flight=0.5", "rollout.in_flight"),
      refused("rollout.in_flight=2.5", "rollout.in_flight"),
      refused("rollout.in_flight=1.5", "nothing corrects for the difference"),
      refused("rollout.carried_steps=0", "rollout.carried_steps"),
      {dry_run({"rollout.in_flight=1.25", "algorithm.tis_cap=2", "parallel={dp: 2}"}),
       "5 prompts, of which a step takes 4"},
      {dry_run({"rollout.in_flight=1.25", "algorithm.tis_cap=2", "plan.staleness=1",
                "placement=disaggregated", "cluster={nodes: 1, gpus_per_node: 3}",
                "parallel={generate: {dp: 2}, update_actor: {dp: 1}}"}),
       "5 prompts, of which a step takes 4"},
      {dry_run({"rollout.in_flight=1.5", "algorithm.tis_cap=2", "algorithm.name=remax"}),
       "remax generates a second response"},
      noted({"rollout.carried_steps=2"}, "rollout.in_flight is 1"),
      refused("train.total_steps=9223372036854775807", "train.total_steps"),
      refused("train.total_steps=0", "train.total_steps"),
      refused("train.total_episodes=7", "train.total_episodes"),
      refused("train.epochs_per_rollout=1000000000000", "train.epochs_per_rollout"),
      refused("train.minibatches=3", "nearest valid values"),
      refused("train.minibatches=1000000", "train.minibatches"),
      refused("train.micro_tokens=0", "train.micro_tokens"),
      refused("train.threads=5000", "train.threads"),
      refused("train.threads=-1", "train.threads"),
      refused("optim.actor.lr=1e30", "optim.actor.lr"),
      refused("optim.actor.lr=0", "optim.actor.lr"),
      refused("optim.actor.lr=-1e-3", "optim.actor.lr"),
      refused("optim.actor.lr=[1e-3]", "write 1e-3 without the brackets"),
      refused("optim.actor.betas=[0.9]", "betas"),
      refused("optim.actor.betas=[0.9, 1]", "betas"),
      refused("optim.actor.betas=[0.9, 0.99, 0.999]", "betas"),
      refused("optim.actor.eps=0", "optim.actor.eps"),
      refused("optim.actor.min_lr_ratio=2", "min_lr_ratio"),
      refused("algorithm.clip_low=-1", "clip_low"),
      refused("algorithm.gamma=2", "gamma"),
      refused("algorithm.lam=-0.1", "lam"),
      refused("algorithm.dual_clip=0.5", "dual_clip"),
      refused("algorithm.loss_agg=constant_norm", "loss_norm_tokens"),
      refused("algorithm.loss_agg=mean", "loss_agg"),
      refused("algorithm.kl.estimator=k4", "estimator"),
      refused("algorithm.kl.controller=adaptiv", "controller"),
      refused("algorithm.kl.coef=-1", "coef"),
      refused("lora.rank=100000", "lora.rank"),
      refused("lora.rank=99999999999", "lora.rank"),
      refused("lora.dropout=1", "lora.dropout"),
      refused("eval.every_steps=1", "eval.every_steps"),
      refused("data.max_prompt_length=2", "data.max_prompt_length"),
      refused("data.prompt_template=none", "prompt_template"),
      refused("checkpoint.keep_last=0", "checkpoint.keep_last"),
  };
}

std::vector<BadInput> bad_names() {
  return {
      refused("algorithm.name=pppo", "ppo"),
      refused("algorithm.name=ktoo", "unknown algorithm 'ktoo' (did you mean 'kto'?)"),
      refused("algorithm.name=ipo", "write 'algorithm.name: dpo' and 'algorithm.preference_loss"),
      refused("algorithm.beta=0", "algorithm.beta"),
      refused("algorithm.preference_loss=ipoo", "did you mean 'ipo'"),
      refused("algorithm.label_smoothing=0.7", "algorithm.label_smoothing"),
      refused("algorithm.name=remix", "trained are ppo, grpo, dapo, dr_grpo, gspo, cispo, rloo"),
      refused("algorithm.name=''", "algorithm.name"),
      refused("algoritm.name=ppo", "algorithm"),
      refused("rollout.temprature=1", "temperature"),
      refused("rolout={}", "rollout"),
      refused("num_generations=8", "rollout.samples_per_prompt"),
      refused("mask_truncated_completions=true", "algorithm.mask_truncated"),
      refused("use_dora=true", "DoRA"),
      refused("report_to=wandb", "log.wandb"),
      refused("actor_rollout_ref.rollout.n=8", "rollout.samples_per_prompt"),
      refused("device=tpu", "cpu, cuda, cuda:N or emulated"),
      refused("device=cuda:x", "cpu, cuda, cuda:N or emulated"),
      refused("device=cuda:-1", "device"),
      refused("device=cuda:999", "device"),
      refused("model.config=/no/such/config.json", "model.config"),
      refused("model.path=/no/such/model", "model.path"),
      refused("reference.path=/no/such/model", "reference.path"),
      refused("tokenizer.path=/no/such/tokenizer", "tokenizer.path"),
      refused("tokenizer.path=README.md", "README.md"),
      refused("data.train=/no/such/data.jsonl", "/no/such/data.jsonl"),
      refused("data.train=task:no_such_task", "task"),
      refused("data.train=''", "data.train"),
      refused("data.train=https://example.org/a.jsonl", "download it first"),
      {dry_run({"data.train=-", "parallel={dp: 2}"}),
       "data.train: standard input goes to one process, but each of 2 ranks reads the data"},
      refused("data.eval=/no/such/data.jsonl", "/no/such/data.jsonl"),
      refused("run.dir=/proc/none", "run.dir"),
      refused("run.dir=README.md/runs", "run.dir"),
      refused("checkpoint.dir=/proc/none", "checkpoint.dir"),
      refused("checkpoint.resume=/no/such/checkpoint", "checkpoint"),
      refused("rollout.replay=/no/such/rollouts.jsonl", "/no/such/rollouts.jsonl"),
      refused("log.command=[/no/such/program]", "log.command"),
      refused("log.command=[no-such-program-at-all]", "log.command"),
      refused("log.command=[README.md]", "log.command"),
      refused("cluster={gpu: no-such-gpu, nodes: 1, gpus_per_node: 1}", "no-such-gpu"),
      refused("plan.graph=x.yaml", "plan.graph"),
      {dry_run({"algorithm.name=ppo", "critic.path=/no/such/model"}), "critic.path"},
      {dry_run({"algorithm.name=ppo", "critic.init_from=reward_model"}), "critic.init_from"},
      {dry_run({"model.config=", "model.path="}), "model.path"},
      {dry_run({"model.path=tests/data/models/llama", "lora.rank=2", "lora.targets=[]"}),
       "lora.targets"},
      {dry_run({"model.path=tests/data/models/llama", "lora.rank=2", "lora.targets=[query]"}),
       "'query' names no module"},
      {dry_run({"model.path=tests/data/models/llama", "lora.rank=5000"}), "lora.rank"},
      {dry_run({"model.path=tests/data/models/gemma", "lora.rank=2", "lora.targets=[lm_head]"}),
       "lm_head"},
      {dry_run({"model.path=tests/data/models/llama-score"}), "scalar head"},
      {dry_run({"model.path=tests/data/models/llama-lora"}), "adapters"},
      {dry_run({"model.config={F}/small.json"}), "vocabulary of 7 tokens"},
      {dry_run({"model.config={F}/broken.json"}), "broken.json"},
      {dry_run({"model.config={F}/eos.json"}), "eos_token_id 41 is outside"},
      {dry_run({"model.config={F}/foreign.json"}), "foreign.json"},
      {dry_run({"model.config={F}/empty"}), "empty"},
  };
}

std::vector<BadInput> bad_rewards() {
  const auto reward = [](const std::string& entry, const std::string& says) {
    return refused(cat("reward=[", entry, "]"), says);
  };
  return {
      refused("reward=[]", "reward"),
      refused("reward={}", "reward"),
      refused("reward=rule", "reward"),
      reward("{}", "command line: reward"),
      reward("{type: rules}", "rule"),
      reward("{type: rule}", "needs 'rule'"),
      reward("{type: rule, rule: exakt}", "exact"),
      reward("{type: rule, rule: regex}", "needs 'pattern'"),
      reward("{type: rule, rule: regex, pattern: '('}", "pattern"),
      reward("{type: rule, rule: length}", "'target'"),
      reward("{type: rule, rule: length, target: 5, unit: words}", "unit"),
      reward("{type: rule, rule: exact, wieght: 2}", "weight"),
      reward("{type: rule, rule: exact, weight: inf}", "weight"),
      reward("{type: rule, rule: exact, url: 'http://x'}", "does not read 'url'"),
      reward("{type: rule, rule: exact, on_error: ignore}", "on_error"),
      reward("{type: rule, rule: exact}, {type: rule, rule: lcs}", "two rewards are called"),
      reward("{type: http}", "url"),
      reward("{type: http, url: 'ftp://x'}", "http://"),
      reward("{type: http, url: 'http://'}", "no host"),
      reward("{type: http, url: 'http://x', retries: 3}", "does not read 'retries'"),
      reward("{type: http, url: 'http://x', outage_s: -1}", "outage_s"),
      reward("{type: http, url: 'http://x', batch_samples: 0}", "batch_samples"),
      reward("{type: http, url: 'http://x', workers: 5000}", "workers"),
      reward("{type: command}", "needs 'command'"),
      reward("{type: command, command: []}", "needs 'command'"),
      reward("{type: command, command: [/no/such/judge]}", "/no/such/judge"),
      reward("{type: command, command: [cat], timeout_s: 0}", "timeout_s"),
      reward("{type: command, command: [cat], memory_mb: -1}", "memory_mb"),
      reward("{type: command, command: [cat], memory_mb: 9000000000000000000}", "memory_mb"),
      reward("{type: python, function: f}", "needs 'path'"),
      reward("{type: python, path: '{F}/f.py'}", "needs 'function'"),
      reward("{type: python, path: /no/such.py, function: f}", "no such file"),
      reward("{type: python, path: '{F}/f.py', function: g}", "no function 'g'"),
      reward("{type: python, path: '{F}/syntax.py', function: f}", "SyntaxError"),
      reward("{type: python, path: '{F}/import.py', function: f}", "no_such_module"),
      reward("{type: python, path: '{F}/names.py', function: f}", "signature"),
      reward("{type: python, path: '{F}/exits.py', function: f}", "SystemExit"),
      reward("{type: python, path: '{F}/f.py', function: f, signature: openai}", "signature"),
      reward("{type: python, path: '{F}/f.py', function: f, batch: prompt}", "batch"),
      reward("{type: python, path: '{F}/verl.py', function: f, batch: step}", "batch: step needs"),
      reward("{type: python, path: '{F}/verl.py', function: f, kwargs: 5}", "kwargs"),
      reward("{type: python, path: '{F}/verl.py', function: f, kwargs: {scale: 2}}", "'scale'"),
      reward("{type: python, path: '{F}/column.py', function: f}",
             "no column of that name (did you mean 'label'?)"),
      reward("{type: python, path: '{F}/column.py', function: verl}", "'style' has no default"),
      reward("{type: python, path: '{F}/column.py', function: first}", "positional only"),
      reward("{type: model, path: /no/such/model}", "/no/such/model"),
      reward("{type: model}", "model"),
  };
}

std::vector<BadInput> bad_reward_runs() {
  const auto test = [](const std::string& entry, const std::string& samples,
                       const std::string& says) {
    return BadInput{{"reward-test", cat("reward=[", entry, "]"), "--samples", samples}, says};
  };
  const std::string exact = "{type: rule, rule: exact}", good = "{F}/samples.jsonl";
  const auto python = [&](const std::string& function, const std::string& says) {
    return test(cat("{type: python, path: '{F}/fails.py', timeout_s: 3, function: ", function, "}"),
                good, says);
  };
  return {
      test(exact, "/no/such.jsonl", "/no/such.jsonl"),
      test(exact, "{F}/empty", "holds no samples"),
      test(exact, "{F}/not_json.jsonl", "not_json.jsonl:1"),
      test(exact, "{F}/no_prompt.jsonl", "prompt"),
      test(exact, "{F}/no_label.jsonl", "label"),
      test("{type: rule, rule: numeric}", "{F}/text_label.jsonl", "holds no number"),
      test("{type: command, command: [cat]}", good, "no number 'reward'"),
      test("{type: command, command: ['true']}", good, "status 0"),
      test("{type: command, command: [sh, -c, 'exit 3']}", good, "status 3"),
      test("{type: command, command: [sh, -c, 'kill -9 $$']}", good, "signal 9"),
      test("{type: command, command: [sh, -c, 'sleep 60'], timeout_s: 0.3}", good,
           "no answer within"),
      test("{type: command, command: [sh, -c, 'cat > /dev/null'], timeout_s: 0.3}", good,
           "no answer within"),
      test("{type: command, command: ['yes']}", good, "not a JSON object"),
      test("{type: http, url: 'http://127.0.0.1:1/', outage_s: 0}", good, "cannot connect"),
      test("{type: http, url: 'http://no-such-host.invalid/', outage_s: 0, timeout_s: 5}", good,
           "no-such-host.invalid"),
      python("raises", "ZeroDivisionError"),
      python("text", "text 'good'"),
      python("nan", "not a finite number"),
      python("short", "1 rewards for 2 completions"),
      python("number", "not a list"),
      python("hangs", "no answer within 3"),
      python("dies", "status 4"),
      python("nothing", "NoneType"),
      python("absent", "error: "),
  };
}

std::vector<BadInput> bad_data() {
  const auto data = [](const std::string& file, const std::string& says) {
    return refused(cat("data.train={F}/", file), says);
  };
  return {
      data("empty", "no usable line"),
      data("not_json.jsonl", "not_json.jsonl:1"),
      data("late.jsonl", "late.jsonl:41"),
      data("array.jsonl", "array.jsonl:1"),
      data("no_prompt.jsonl", "no_prompt.jsonl:1"),
      data("number_prompt.jsonl", "number_prompt.jsonl:1"),
      data("utf8.jsonl", "utf8.jsonl:1"),
      data("negative_ids.jsonl", "negative_ids.jsonl:1"),
      data("huge_ids.jsonl", "huge_ids.jsonl:1"),
      data("twice.jsonl", "twice.jsonl:1"),
      data("deep.jsonl", "deep.jsonl:1: nested deeper than 200 levels"),
      data("long.jsonl", "data.max_prompt_length"),
      data("folder", "folder"),
      {dry_run({"algorithm.name=sft", "data.train={F}/samples_only.jsonl"}),
       "samples_only.jsonl:1"},
      {dry_run({"algorithm.name=rm", "data.train={F}/samples_only.jsonl"}), "chosen"},
  };
}

std::vector<BadInput> bad_commands() {
  return {
      {{"trian"}, "train"},
      {{"train"}, "no configuration"},
      {{"train", "/no/such.yaml"}, "/no/such.yaml"},
      {{"train", "{F}/folder"}, "folder"},
      {{"train", "{F}/tabs.yaml"}, "tabs.yaml"},
      {{"train", "{F}/twice.yaml"}, "twice.yaml"},
      {{"train", "{F}/anchor.yaml"}, "anchor.yaml"},
      {{"train", "{F}/list.yaml"}, "list.yaml"},
      {{"train", "{F}/unset.yaml"}, "BRAID_NO_SUCH_VARIABLE"},
      {{"train", "{F}/binary.yaml"}, "binary.yaml"},
      {dry_run({"optim.actor.lr", "1e-3"}), "optim.actor.lr=VALUE"},
      {dry_run({"rollout.temperature:0.7"}), "rollout.temperature=0.7"},
      {dry_run({"=5"}), "key"},
      {dry_run({"rollout..top_p=1"}), "rollout..top_p"},
      {dry_run({".=1"}), "key"},
      {dry_run({"rollout.stop=[a"}), "command line"},
      {dry_run({"--no-such-flag"}), "no-such-flag"},
      {{"data", "data.train=task:sort_digits", "tokenizer.path=examples/quickstart/model", "--show",
        "-1"},
       "--show"},
      {{"data", "--show", "many"}, "--show"},
      {{"generate"}, "MODEL"},
      {{"generate", "/no/such/model", "--prompt", "x"}, "/no/such/model"},
      {{"generate", "tests/data/models/llama", "--prompt", "x"}, "tokenizer"},
      {{"generate", "tests/data/models/llama", "--prompts", "/no/such.jsonl"}, "/no/such.jsonl"},
      {{"generate", "tests/data/models/llama", "--prompts", "{F}/not_json.jsonl"},
       "not_json.jsonl"},
      {{"generate", "tests/data/models/llama", "--prompts", "{F}/huge_ids.jsonl"}, "vocabulary"},
      {{"score", "tests/data/models/llama", "--input", "{F}/empty_prompt.jsonl"},
       "empty_prompt.jsonl"},
      {{"tokenize", "/no/such/tokenizer"}, "--input"},
      {{"tokenize", "/no/such/tokenizer", "--input", "{F}/samples.jsonl"}, "/no/such/tokenizer"},
      {{"eval", "/no/such.yaml"}, "/no/such.yaml"},
      {{"reward-test"}, "--samples"},
      {{"reward-test", "--samples", "{F}/samples.jsonl"}, "no configuration"},
      {{"config", "{F}/tabs.yaml"}, "tabs.yaml"},
      {{"plan", "model.size=no-such-model"}, "no-such-model"},
      {{"simulate", "/no/such.yaml"}, "/no/such.yaml"},
  };
}

// Not wrong, but seldom meant.
std::vector<BadInput> odd_inputs() {
  return {
      noted({"optim.actor.lr=0.5"}, "optim.actor.lr"),
      noted({"optim.actor.warmup_steps=100000"}, "optim.actor.warmup_steps"),
      noted({"critic.path=tests/data/models/llama"}, "critic.path is not read: grpo has no critic"),
      noted({"algorithm.gamma=0.9"}, "algorithm.gamma is not read"),
      noted({"algorithm.lam=0.9"}, "algorithm.lam is not read"),
      noted({"algorithm.whiten_rewards=true"}, "grpo has no rewards per token"),
      noted({"optim.critic.lr=1e-4"}, "optim.critic.lr is not read"),
      noted({"optim.reward.lr=1e-4"}, "optim.reward.lr is not read"),
      noted({"lora.alpha=32"}, "lora.alpha is not read"),
      noted({"lora.targets=[all-linear]"}, "lora.targets is not read"),
      noted({"rollout.max_concurrent=1000000"}, "rollout.max_concurrent"),
      noted({"train.threads=500"}, "train.threads"),
      noted({"rollout.ignore_eos=true"}, "every response goes on"),
      noted({"algorithm.kl.coef=0", "reference.path=tests/data/models/llama"},
            "reference.path is not read"),
      noted({"algorithm.name=ppo", "critic.warmup_steps=1000"}, "critic.warmup_steps"),
      noted({"algorithm.name=sft", "data.train={F}/sft.jsonl"}, "sft generates nothing"),
      noted({"tokenizer.path={F}/chat", "data.train={F}/roles.jsonl"}, "the role 'usre'"),
  };
}

BadInput run_for_real(std::vector<std::string> more, const std::string& says,
                      bool goes_on = false) {
  BadInput out = {dry_run(std::move(more)), says, goes_on};
  out.arguments.erase(out.arguments.begin() + 1);
  return out;
}

// Plans, and keys that a run would ignore: few enough for the fast tier.
std::vector<BadInput> plans_and_ignored_keys() {
  const std::string two = "parallel={dp: 2}";
  return {
      {dry_run({two, "device=cuda"}), "device: cuda: no CUDA device can be used here"},
      {dry_run({two, "device=emulated"}), "device emulated stands for the devices that it names"},
      {dry_run({"plan.auto=true", "cluster={gpu: a100-80g}"}),
       "plan.auto: cluster names a100-80g, and device is cpu"},
      {dry_run({"plan.file={F}/host.plan.yaml", "plan.host_memory_gib=0.0001"}),
       "plan: the host of node 0 runs out of memory"},
      noted(
          {"plan.file={F}/host.plan.yaml", "train.micro_tokens=100", "train.recompute=true"},
          "train.micro_tokens: the plan overrules 100: micro_batches 1 (old_logprob, ref_logprob, "
          "update_actor)"),
      noted({two, "train.recompute=true"},
            "train.recompute: the plan overrules true: recompute none (update_actor)"),
      noted({"workload.response_length=3", "model.size=llama2-7b"},
            "model.size is not read: 'braid plan' and 'braid simulate' read it"),
      noted({"plan.memory_limit_gib=1"},
            "plan.memory_limit_gib is not read: no plan is stated; train.memory_limit_gib limits"),
      noted({"rollout.kv_budget_tokens=1000000000000"},
            "sequences of up to 518 tokens take 139264"),
      refused("algorithm.name=nothing", "unknown algorithm 'nothing'"),
      refused("checkpoint.keep_best=reward", "no metric is called 'reward'"),
      refused("checkpoint.keep_best=eval/accuracy", "set eval.every_steps"),
      refused("run.name=\"a\\nb\"", "run.name: 'a\\x0ab' has a line break"),
      run_for_real({"model.config=", "model.path="}, "model.path"),
      run_for_real({"run.name=best", "train.total_steps=1", "checkpoint.keep_best=reward/raw_meen"},
                   "step 1 has no metric 'reward/raw_meen' (did you mean 'reward/raw_mean'?)",
                   true),
      {{"train", "--order", "/no/such/folder/order"},
       "--order: /no/such/folder/order: there is no"},
  };
}

std::vector<BadInput> all_inputs() {
  std::vector<BadInput> out;
  for (auto make : {bad_numbers, bad_names, bad_rewards, bad_reward_runs, bad_data, bad_commands,
                    odd_inputs, wrong_types})
    for (BadInput& input : make()) out.push_back(std::move(input));
  return out;
}

class BadInputs : public CommandTest {
 protected:
  void SetUp() override {
    CommandTest::SetUp();
    if (IsSkipped()) return;
    write_models();
    write_functions();
    write_data();
    write_configurations();
    ASSERT_TRUE(make_folder(join_path(folder_, "folder")).ok());
    write("empty", "");
  }

  // What the program prints, and how it ends.
  std::pair<std::string, std::string> run(const BadInput& input) const {
    std::vector<std::string> argv = {"env", "-C", BRAID_SOURCE_DIR, BRAID_BINARY};
    for (std::string argument : input.arguments) {
      for (size_t at = argument.find("{F}"); at != std::string::npos; at = argument.find("{F}"))
        argument.replace(at, 3, folder_);
      argv.push_back(std::move(argument));
    }
    auto process = ChildProcess::start({argv});
    if (!process.ok()) return {process.status().message(), ""};
    (*process)->close_input();
    const Deadline deadline = deadline_in(kDeadline_s);
    std::string printed;
    for (auto line = (*process)->read_line(deadline); line.ok();
         line = (*process)->read_line(deadline))
      printed += *line + "\n";
    const auto end = (*process)->wait(deadline);
    return {printed + (*process)->take_errors(), end.ok() ? *end : end.status().message()};
  }

  void check(const BadInput& input) const {
    const auto [printed, end] = run(input);
    SCOPED_TRACE(cat(join(input.arguments, " "), "\n", printed));
    EXPECT_THAT(printed, HasSubstr(input.says));
    for (const char* raw : {"terminate called", "what():", "c10::", "Exception raised from",
                            "ATen/", "std::", "bad_alloc", "Assertion", "CHECK"})
      EXPECT_THAT(printed, Not(HasSubstr(raw)));
    if (input.goes_on) {
      EXPECT_EQ(end, "exited with status 0");
      EXPECT_THAT(printed, HasSubstr("warning"));
      return;
    }
    EXPECT_THAT(end, AnyOf("exited with status 1", "exited with status 2"));
    EXPECT_EQ(error_lines(printed), 1);
  }

 private:
  void write_models() const {
    Json config = *parse_json(
        *read_file(cat(BRAID_SOURCE_DIR, "/examples/quickstart/model/config.json")), "config");
    config["vocab_size"] = 7;
    write("small.json", config.dump());
    write("broken.json", "{\"model_type\": ");
    config["vocab_size"] = 41;
    config["eos_token_id"] = {2, 41};
    write("eos.json", config.dump());
    write("foreign.json", R"({"model_type": "resnet", "architectures": ["ResNet"]})");
    ASSERT_TRUE(make_folder(join_path(folder_, "chat")).ok());
    const auto tokenizer =
        read_file(cat(BRAID_SOURCE_DIR, "/examples/quickstart/model/tokenizer.json"));
    write("chat/tokenizer.json", *tokenizer);
    write("chat/tokenizer_config.json",
          R"({"chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}="})");
  }

  void write_functions() const {
    write("f.py",
          "def f(prompts, completions, **columns):\n    return [0.0 for _ in completions]\n");
    write("verl.py",
          "def f(data_source, solution_str, ground_truth, extra_info):\n    return 0.0\n");
    write("column.py",
          "def f(prompts, completions, labels):\n    return [0.0 for _ in completions]\n"
          "def verl(solution_str, ground_truth, style):\n    return 0.0\n"
          "def first(solution_str, /):\n    return 0.0\n");
    write("names.py", "def f(a, b):\n    return 0.0\n");
    write("syntax.py", "def f(:\n");
    write("import.py", "import no_such_module\n");
    write("exits.py", "import sys\nsys.exit(3)\n");
    write("fails.py", R"(import os, time
def raises(prompts, completions, **columns): return 1 / 0
def text(prompts, completions, **columns): return ["good"] * len(completions)
def nan(prompts, completions, **columns): return [float("nan")] * len(completions)
def short(prompts, completions, **columns): return [1.0]
def number(prompts, completions, **columns): return 1.0
def hangs(prompts, completions, **columns): time.sleep(60)
def dies(prompts, completions, **columns): os._exit(4)
def nothing(prompts, completions, **columns): pass
def absent(solution_str, **columns): return None
)");
  }

  void write_data() const {
    write("samples.jsonl",
          "{\"prompt\": \"p\", \"response\": \"r\", \"label\": \"r\"}\n"
          "{\"prompt\": \"q\", \"response\": \"s\", \"label\": \"r\"}\n");
    write("samples_only.jsonl", "{\"prompt\": \"312\"}\n");
    write("sft.jsonl", "{\"prompt\": \"312\", \"response\": \"123\"}\n");
    write("not_json.jsonl", "not json\n");
    write("no_prompt.jsonl", "{\"question\": \"312\", \"response\": \"r\"}\n");
    write("no_label.jsonl", "{\"prompt\": \"p\", \"response\": \"r\"}\n");
    write("text_label.jsonl", "{\"prompt\": \"p\", \"response\": \"1\", \"label\": \"none\"}\n");
    write("array.jsonl", "[1, 2]\n");
    write("roles.jsonl", R"({"prompt": [{"role": "usre", "content": "312"}], "label": "123"})");
    write("number_prompt.jsonl", "{\"prompt\": 312}\n");
    write("empty_prompt.jsonl", "{\"prompt\": \"\"}\n");
    write("utf8.jsonl", "{\"prompt\": \"\xff\xfe\"}\n");
    write("negative_ids.jsonl", "{\"ids\": [-1]}\n");
    write("huge_ids.jsonl", "{\"ids\": [999999]}\n");
    write("twice.jsonl", "{\"prompt\": \"3\", \"prompt\": \"4\"}\n");
    write("deep.jsonl", std::string(100000, '[') + "\n");
    write("long.jsonl", "{\"prompt\": \"" + std::string(5000, '3') + "\"}\n");
    std::string late;
    for (int line = 0; line < 40; ++line) late += "{\"prompt\": \"312\", \"label\": \"123\"}\n";
    write("late.jsonl", late + "{\"prompt\": 5}\n");
  }

  void write_configurations() const {
    const auto plan = [](const std::string& generate, const std::string& roles) {
      return cat("graph: grpo\ndevices: 2\ncalls:\n  generate: {mesh: ", generate,
                 ", dp: 2}\n  old_logprob: {mesh: all, dp: 2}\n  ref_logprob: {mesh: all, dp: 2}\n"
                 "  update_actor: {mesh: all, dp: 2}\n",
                 roles);
    };
    write("host.plan.yaml", plan("all", "roles: {reference: {weights: host}}\n"));
    write("tabs.yaml", "model:\n\tpath: x\n");
    write("twice.yaml", "device: cpu\ndevice: cpu\n");
    write("anchor.yaml", "device: &a cpu\n");
    write("list.yaml", "- device: cpu\n");
    write("unset.yaml", "model: {path: '${BRAID_NO_SUCH_VARIABLE}'}\n");
    write("binary.yaml", std::string("\0\1\2\3", 4));
  }
};

TEST_F(BadInputs, OfPlansAndIgnoredKeysAreNamed) {
  const std::vector<BadInput> inputs = plans_and_ignored_keys();
  const Status done = for_each_on_workers(inputs.size(), kWorkers, [&](size_t, size_t i) {
    check(inputs[i]);
    return ok_status();
  });
  EXPECT_TRUE(done.ok()) << done.message();
}

TEST_F(BadInputs, EndWithOneMessageThatSaysWhereOrGoOnWithAWarning) {
  std::vector<BadInput> inputs = all_inputs();
  EXPECT_GE(inputs.size(), 300u);
  if (!full_tier()) {
    RandomStream random(kSampleSeed, 0);
    for (size_t i = 0; i < kSampled; ++i)
      std::swap(inputs[i], inputs[i + random.below(inputs.size() - i)]);
    inputs.resize(kSampled);
  }
  const Status done = for_each_on_workers(inputs.size(), kWorkers, [&](size_t, size_t i) {
    check(inputs[i]);
    return ok_status();
  });
  EXPECT_TRUE(done.ok()) << done.message();
  RecordProperty("inputs", static_cast<int>(inputs.size()));
}

}  // namespace
}  // namespace braid
