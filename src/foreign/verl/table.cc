// verl's keys beside the fields of a plan: one row for every key, built group by group.
#include "foreign/shell/shell.h"
#include "foreign/text.h"
#include "foreign/verl/verl.h"

namespace braid::inline foreign {
namespace {

using S = VerlSettings;
using Key = foreign::SettingKey<S>;
using Worker = VerlWorker S::*;
using Engine = VerlEngine S::*;
using Pool = VerlPool S::*;
using Layout = VerlLayout VerlWorker::*;

class Rows {
 public:
  template <typename T>
  void add(const std::string& key, const std::string& ours, T S::*field) {
    add_field<T>(key, ours, [field](S& s) -> T& { return s.*field; });
  }
  template <typename T>
  void add(const std::string& key, const std::string& ours, Worker worker, T VerlWorker::*field) {
    add_field<T>(key, ours, [worker, field](S& s) -> T& { return s.*worker.*field; });
  }
  template <typename T>
  void add(const std::string& key, const std::string& ours, Engine engine, T VerlEngine::*field) {
    add_field<T>(key, ours, [engine, field](S& s) -> T& { return s.*engine.*field; });
  }
  void add_pool(const std::string& prefix, const std::string& ours, Pool pool) {
    add_field<int64_t>(cat(prefix, "nnodes"), ours,
                       [pool](S& s) -> int64_t& { return (s.*pool).nodes; });
    add_field<int64_t>(cat(prefix, "n_gpus_per_node"), ours,
                       [pool](S& s) -> int64_t& { return (s.*pool).per_node; });
  }

  // A field of one backend's layout of one worker, or of the worker itself.
  class Group {
   public:
    Group(Rows* rows, std::string prefix, std::string call, Worker worker, Layout layout)
        : rows_(rows),
          prefix_(std::move(prefix)),
          call_(std::move(call)),
          worker_(worker),
          layout_(layout) {}
    template <typename T>
    Group& add(const std::string& key, const std::string& ours, T VerlLayout::*field) {
      const Worker worker = worker_;
      const Layout layout = layout_;
      rows_->add_field<T>(cat(prefix_, key), cat(call_, ".", ours),
                          [worker, layout, field](S& s) -> T& { return s.*worker.*layout.*field; });
      return *this;
    }
    Group& offload() {
      return add("param_offload", "weights: host", &VerlLayout::offload_weights)
          .add("optimizer_offload", "optimizer: host", &VerlLayout::offload_optimizer);
    }

   private:
    Rows* rows_;
    std::string prefix_, call_;
    Worker worker_;
    Layout layout_;
  };

  std::vector<Key> take() { return std::move(rows_); }

 private:
  template <typename T>
  void add_field(const std::string& key, const std::string& ours, std::function<T&(S&)> field) {
    rows_.push_back({key, ours, std::move(field)});
  }

  std::vector<Key> rows_;
};

// A worker under its prefix ("critic."), with the call that it plans.
struct Place {
  std::string prefix, call;
  Worker worker;
};

void add_fsdp(Rows& rows, const std::string& group, const Place& place) {
  Rows::Group(&rows, group, place.call, place.worker, &VerlWorker::fsdp)
      .offload()
      .add("fsdp_size", "zero_ranks", &VerlLayout::shards)
      .add("reshard_after_forward", "zero: 3", &VerlLayout::reshard)
      .add("ulysses_sequence_parallel_size", "cp", &VerlLayout::cp)
      .add("dtype", "precision", &VerlLayout::dtype);
  Rows::Group(&rows, cat(group, "turbo_config.distributed."), place.call, place.worker,
              &VerlWorker::turbo)
      .add("tensor_parallel_size", "tp", &VerlLayout::tp)
      .add("ulysses_parallel_size", "cp", &VerlLayout::cp)
      .add("expert_parallel_size", "ep", &VerlLayout::ep)
      .add("fully_shard_parallel_size", "zero_ranks", &VerlLayout::shards);
}

void add_megatron(Rows& rows, const Place& place) {
  Rows::Group group(&rows, cat(place.prefix, "megatron."), place.call, place.worker,
                    &VerlWorker::megatron);
  const std::string config = "override_transformer_config.";
  group.offload()
      .add("tensor_model_parallel_size", "tp", &VerlLayout::tp)
      .add("pipeline_model_parallel_size", "pp", &VerlLayout::pp)
      .add("virtual_pipeline_model_parallel_size", "interleave", &VerlLayout::vpp)
      .add("context_parallel_size", "cp", &VerlLayout::cp)
      .add("expert_model_parallel_size", "ep", &VerlLayout::ep)
      .add("expert_tensor_parallel_size", "expert_tp", &VerlLayout::expert_tp)
      .add("sequence_parallel", "sequence_parallel", &VerlLayout::sequence_parallel)
      .add("use_megatron_fsdp", "zero: 3", &VerlLayout::fully_sharded)
      .add("dtype", "precision", &VerlLayout::dtype)
      .add(config + "recompute_granularity", "recompute", &VerlLayout::granularity)
      .add(config + "fp8", "precision", &VerlLayout::fp8)
      .add(config + "num_layers_in_first_pipeline_stage", "stage_layers", &VerlLayout::first_layers)
      .add(config + "num_layers_in_last_pipeline_stage", "stage_layers", &VerlLayout::last_layers);
}

void add_other_backends(Rows& rows, const Place& place) {
  const auto group = [&](const char* name, Layout layout) {
    return Rows::Group(&rows, cat(place.prefix, name, "."), place.call, place.worker, layout);
  };
  group("veomni", &VerlWorker::veomni)
      .offload()
      .add("ulysses_parallel_size", "cp", &VerlLayout::cp)
      .add("expert_parallel_size", "ep", &VerlLayout::ep)
      .add("fsdp_size", "zero_ranks", &VerlLayout::shards)
      .add("enable_full_shard", "zero: 3", &VerlLayout::reshard);
  group("automodel", &VerlWorker::automodel)
      .offload()
      .add("tp_size", "tp", &VerlLayout::tp)
      .add("pp_size", "pp", &VerlLayout::pp)
      .add("cp_size", "cp", &VerlLayout::cp)
      .add("ep_size", "ep", &VerlLayout::ep)
      .add("dp_replicate_size", "zero_ranks", &VerlLayout::copies)
      .add("sequence_parallel", "sequence_parallel", &VerlLayout::sequence_parallel);
  group("torchtitan", &VerlWorker::torchtitan)
      .offload()
      .add("tensor_parallel_size", "tp", &VerlLayout::tp)
      .add("pipeline_parallel_size", "pp", &VerlLayout::pp)
      .add("context_parallel_size", "cp", &VerlLayout::cp)
      .add("expert_parallel_size", "ep", &VerlLayout::ep)
      .add("data_parallel_replicate_size", "zero_ranks", &VerlLayout::copies)
      .add("activation_checkpoint", "recompute", &VerlLayout::granularity);
  group("engine", &VerlWorker::lite)
      .offload()
      .add("tp", "tp", &VerlLayout::tp)
      .add("pp", "pp", &VerlLayout::pp)
      .add("vpp", "interleave", &VerlLayout::vpp)
      .add("cp", "cp", &VerlLayout::cp)
      .add("ep", "ep", &VerlLayout::ep)
      .add("etp", "expert_tp", &VerlLayout::expert_tp);
}

void add_backends(Rows& rows, const std::vector<std::string>& fsdp_groups, const Place& place) {
  for (const std::string& group : fsdp_groups) add_fsdp(rows, group, place);
  add_megatron(rows, place);
  add_other_backends(rows, place);
  rows.add(cat(place.prefix, "ulysses_sequence_parallel_size"), cat(place.call, ".cp"),
           place.worker, &VerlWorker::ulysses);
  rows.add(cat(place.prefix, "strategy"), cat(place.call, ".zero and tp, pp"), place.worker,
           &VerlWorker::strategy);
}

void add_training(Rows& rows, const Place& place) {
  const auto [prefix, call, worker] = place;
  rows.add(cat(prefix, "ppo_mini_batch_size"), "train.minibatches (their number)", worker,
           &VerlWorker::mini_batch);
  rows.add(cat(prefix, "ppo_epochs"), "train.epochs_per_rollout", worker, &VerlWorker::epochs);
  rows.add(cat(prefix, "ppo_micro_batch_size_per_gpu"), cat(call, ".micro_batches (their number)"),
           worker, &VerlWorker::micro_batch);
  rows.add(cat(prefix, "use_dynamic_bsz"), cat(call, ".micro_tokens > 0"), worker,
           &VerlWorker::dynamic);
  rows.add(cat(prefix, "ppo_max_token_len_per_gpu"), cat(call, ".micro_tokens"), worker,
           &VerlWorker::max_tokens);
  rows.add(cat(prefix, "optim.override_optimizer_config.optimizer_cpu_offload"),
           cat("roles of ", call, ": optimizer: host"), worker, &VerlWorker::optimizer_on_host);
}

void add_log_probs(Rows& rows, const std::string& prefix, const std::string& call, Worker worker) {
  rows.add(cat(prefix, "log_prob_micro_batch_size_per_gpu"),
           cat(call, ".micro_batches (their number)"), worker, &VerlWorker::infer_micro_batch);
  rows.add(cat(prefix, "log_prob_use_dynamic_bsz"), cat(call, ".micro_tokens > 0"), worker,
           &VerlWorker::infer_dynamic);
  rows.add(cat(prefix, "log_prob_max_token_len_per_gpu"), cat(call, ".micro_tokens"), worker,
           &VerlWorker::infer_max_tokens);
}

void add_actor(Rows& rows) {
  const std::string model = "actor_rollout_ref.model.", actor = "actor_rollout_ref.actor.";
  rows.add(model + "path", "model.size", &S::actor, &VerlWorker::path);
  rows.add(model + "lora_rank", "lora.rank", &S::lora_rank);
  rows.add(model + "lora.rank", "lora.rank", &S::megatron_lora_rank);
  rows.add(model + "enable_gradient_checkpointing", "update_actor.recompute", &S::actor,
           &VerlWorker::checkpointing);
  rows.add(actor + "use_kl_loss", "algorithm.kl.in: loss", &S::kl_loss);
  rows.add(actor + "policy_loss.loss_mode", "algorithm.name: gspo, cispo", &S::loss_mode);
  const Place place{actor, "update_actor", &S::actor};
  add_training(rows, place);
  add_backends(rows, {actor + "fsdp_config."}, place);
  const std::string ref = "actor_rollout_ref.ref.";
  add_log_probs(rows, ref, "ref_logprob", &S::ref);
  add_backends(rows, {ref + "fsdp_config."}, {ref, "ref_logprob", &S::ref});
}

void add_engine(Rows& rows, const std::string& prefix, const std::string& call, Engine engine) {
  rows.add(prefix + "name", "plan.generate_engine", engine, &VerlEngine::name);
  rows.add(prefix + "tensor_model_parallel_size", cat(call, ".tp"), engine, &VerlEngine::tp);
  rows.add(prefix + "data_parallel_size", cat(call, ".dp"), engine, &VerlEngine::dp);
  rows.add(prefix + "pipeline_model_parallel_size", cat(call, ".pp"), engine, &VerlEngine::pp);
  rows.add(prefix + "expert_parallel_size", cat(call, ".ep"), engine, &VerlEngine::ep);
  rows.add(prefix + "moe_tensor_parallel_size", cat(call, ".expert_tp"), engine,
           &VerlEngine::expert_tp);
  rows.add(prefix + "gpu_memory_utilization", cat(call, ".kv_budget_tokens"), engine,
           &VerlEngine::memory_share);
  rows.add(prefix + "max_num_seqs", cat(call, ".max_concurrent"), engine,
           &VerlEngine::max_num_seqs);
  rows.add(prefix + "max_num_batched_tokens", "plan.engine_batch_tokens", engine,
           &VerlEngine::max_batched_tokens);
  rows.add(prefix + "quantization", cat(call, ".precision"), engine, &VerlEngine::quantization);
}

void add_rollout(Rows& rows) {
  const std::string rollout = "actor_rollout_ref.rollout.";
  add_engine(rows, rollout, "generate", &S::rollout);
  rows.add(rollout + "n", "rollout.samples_per_prompt", &S::samples);
  rows.add(rollout + "prompt_length", "data.max_prompt_length", &S::prompt_length);
  rows.add(rollout + "response_length", "rollout.max_response_length", &S::response_length);
  rows.add(rollout + "max_model_len", "workload.response_length (its limit)", &S::max_model_len);
  rows.add_pool(rollout, "generate.mesh", &S::rollout_pool);
  add_log_probs(rows, rollout, "old_logprob", &S::actor);
}

void add_critic(Rows& rows) {
  const Place place{"critic.", "update_critic", &S::critic};
  rows.add("critic.enable", "algorithm.name: ppo", &S::critic_enabled);
  rows.add("critic.model.path", "critic.size", &S::critic, &VerlWorker::path);
  rows.add("critic.model.enable_gradient_checkpointing", "update_critic.recompute", &S::critic,
           &VerlWorker::checkpointing);
  add_training(rows, place);
  rows.add("critic.forward_micro_batch_size_per_gpu", "values.micro_batches (their number)",
           &S::critic, &VerlWorker::infer_micro_batch);
  rows.add("critic.forward_max_token_len_per_gpu", "values.micro_tokens", &S::critic,
           &VerlWorker::infer_max_tokens);
  add_backends(rows, {"critic.model.fsdp_config.", "critic.fsdp_config.", "critic.fsdp."}, place);
}

void add_reward(Rows& rows) {
  const std::string older = "reward_model.";
  for (const std::string& prefix : {older, std::string("reward.reward_model.")}) {
    rows.add(prefix + "enable", "reward of type model", &S::reward_enabled);
    rows.add(prefix + "enable_resource_pool", "reward.mesh", &S::reward_apart);
    rows.add_pool(prefix, "reward.mesh", &S::reward_pool);
    add_engine(rows, prefix + "rollout.", "reward", &S::reward_engine);
  }
  rows.add("reward.reward_model.model_path", "reward.size", &S::reward, &VerlWorker::path);
  rows.add(older + "model.path", "reward.size", &S::reward, &VerlWorker::path);
  rows.add(older + "micro_batch_size_per_gpu", "reward.micro_batches (their number)", &S::reward,
           &VerlWorker::infer_micro_batch);
  rows.add(older + "use_dynamic_bsz", "reward.micro_tokens > 0", &S::reward,
           &VerlWorker::infer_dynamic);
  rows.add(older + "forward_max_token_len_per_gpu", "reward.micro_tokens", &S::reward,
           &VerlWorker::infer_max_tokens);
  add_backends(rows, {older + "model.fsdp_config."}, {older, "reward", &S::reward});
}

void add_teacher(Rows& rows) {
  const std::string group = "distillation.", one = group + "teacher_models.teacher_model.";
  rows.add(group + "enabled", "the role teacher", &S::distils);
  rows.add_pool(group, "teacher_logprob.mesh", &S::teacher_pool);
  rows.add(one + "model_path", "teacher.size", &S::teacher_path);
  add_engine(rows, one + "inference.", "teacher_logprob", &S::teacher);
}

void add_trainer(Rows& rows) {
  rows.add("data.train_batch_size", "rollout.prompts_per_step", &S::train_batch_size);
  rows.add("data.gen_batch_size", "samples of generate", &S::gen_batch_size);
  rows.add("data.max_prompt_length", "data.max_prompt_length", &S::max_prompt_length);
  rows.add("data.max_response_length", "rollout.max_response_length", &S::max_response_length);
  rows.add("algorithm.adv_estimator", "algorithm.name", &S::adv_estimator);
  rows.add("algorithm.use_kl_in_reward", "algorithm.kl.in: reward", &S::kl_in_reward);
  rows.add("algorithm.rollout_correction.bypass_mode", "algorithm.old_logprobs: sampler",
           &S::bypass);
  rows.add("algorithm.filter_groups.enable", "algorithm.name: dapo", &S::filter_groups);
  rows.add("model_engine", "plan.train_engine", &S::model_engine);
  rows.add("trainer.balance_batch", "in_order: false of all calls but generate", &S::balance_batch);
  rows.add_pool("trainer.", "cluster", &S::trainer);
  rows.add_pool("rollout.", "generate.mesh", &S::rollout_pool);
  rows.add("trainer.v1.trainer_mode", "staleness", &S::trainer_mode);
  rows.add("trainer.v1.separate_async.parameter_sync_step", "rollout.prompts_per_step",
           &S::sync_every);
  rows.add("async_training.trigger_parameter_sync_step", "rollout.prompts_per_step",
           &S::sync_every);
  rows.add("async_training.require_batches", "rollout.prompts_per_step", &S::collected_batches);
}

std::vector<Key> make_table() {
  Rows rows;
  add_trainer(rows);
  add_actor(rows);
  add_rollout(rows);
  add_critic(rows);
  add_reward(rows);
  add_teacher(rows);
  return rows.take();
}

// "--config-name=x", "--config-name x", "-cn x" and "-m module".
void add_arguments(const std::vector<std::string>& words, ForeignKeys* keys) {
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    for (const char* argument : {kVerlConfigName, kVerlConfigPath})
      if (word.rfind(cat(argument, "="), 0) == 0)
        (*keys)[argument] = word.substr(std::string(argument).size() + 1);
    if (i + 1 == words.size()) break;
    if (word == kVerlConfigName || word == "-cn") (*keys)[kVerlConfigName] = words[i + 1];
    if (word == kVerlConfigPath || word == "-cp") (*keys)[kVerlConfigPath] = words[i + 1];
    if (word == kVerlModule) (*keys)[kVerlModule] = words[i + 1];
  }
}

// A launch of RL training has keys of the actor or of the trainer's algorithm.
bool is_training(const ForeignKeys& keys) {
  for (const auto& [key, value] : keys)
    if (key.rfind("actor_rollout_ref.", 0) == 0 || key.rfind("algorithm.", 0) == 0) return true;
  return false;
}

// Variables of the shell have no dot in their names; of verl's keys one has none.
ForeignKeys verl_assignments(const std::vector<std::string>& words) {
  ForeignKeys keys;
  for (const auto& [key, value] : foreign::assignment_keys(words))
    if (key.find_first_of(".@") != std::string::npos || key == "model_engine") keys[key] = value;
  return keys;
}

std::string text_of(const ForeignKeys& keys, const char* key) {
  const auto found = keys.find(key);
  return found == keys.end() ? "" : found->second;
}

ForeignKeys verl_launch_keys(const std::vector<std::string>& words) {
  ForeignKeys keys = verl_assignments(words);
  if (!is_training(keys)) return {};
  add_arguments(words, &keys);
  const std::string module = text_of(keys, kVerlModule);
  for (const char* other : {"generation", "sft", "eval"})
    if (module.find(other) != std::string::npos) return {};
  return keys;
}

Result<ForeignKeys> parse_verl(std::string_view text, const std::string& where) {
  if (foreign::looks_like_yaml(text)) return foreign::yaml_keys(text, where);
  BRAID_ASSIGN(const std::vector<std::string> words, foreign::shell_words(text).at(where));
  ForeignKeys keys = verl_assignments(words);
  if (keys.empty())
    return invalid_input(cat(where,
                             ": holds no verl configuration (YAML, or key=value words such "
                             "as data.train_batch_size=256)"));
  add_arguments(words, &keys);
  return keys;
}

// Where the file or folder of a Python module may lie: whole, or for recipes, which are also
// checked out without the folders around them, its last names.
std::vector<std::string> module_places(const std::string& module) {
  if (module.empty()) return {};
  std::vector<std::string> names = split(module, '.'), out = {join(names, "/")};
  while (names.front() != "verl" && names.size() > 1) {
    names.erase(names.begin());
    out.push_back(join(names, "/"));
  }
  return out;
}

std::vector<std::string> verl_program_files(const ForeignKeys& keys) {
  const std::string module = text_of(keys, kVerlModule);
  if (module.empty() || keys.count(kVerlConfigName) > 0) return {};
  std::vector<std::string> out;
  for (const std::string& place : module_places(module)) out.push_back(place + ".py");
  return out;
}

// The value of a named argument of @hydra.main(...).
std::string hydra_argument(const std::string& source, const char* name) {
  const size_t begin = source.find("@hydra.main(");
  if (begin == std::string::npos) return "";
  const std::string call = source.substr(begin, source.find(')', begin) - begin);
  const std::string mark = cat(name, "=");
  const size_t at = call.find(mark);
  if (at == std::string::npos || at + mark.size() >= call.size()) return "";
  const char quote = call[at + mark.size()];
  const size_t first = at + mark.size() + 1, end = call.find(quote, first);
  return (quote != '"' && quote != '\'') || end == std::string::npos
             ? ""
             : call.substr(first, end - first);
}

ForeignKeys verl_program_keys(const std::string& source) {
  ForeignKeys keys;
  const std::string name = hydra_argument(source, "config_name");
  if (name.empty()) return keys;
  keys[kVerlConfigName] = name;
  if (const std::string path = hydra_argument(source, "config_path"); !path.empty())
    keys[kVerlConfigPath] = path;
  return keys;
}

std::vector<std::string> verl_config_files(const ForeignKeys& keys) {
  std::string name = text_of(keys, kVerlConfigName), path = text_of(keys, kVerlConfigPath);
  if (name.empty() || is_known_verl_config(name)) return {};
  if (name.find(".yaml") == std::string::npos) name += ".yaml";
  if (path.empty()) path = "config";
  std::string module = text_of(keys, kVerlModule);
  module = module.substr(0, std::min(module.rfind('.'), module.size()));
  if (path[0] == '/') return {cat(path, "/", name)};
  std::vector<std::string> out;
  for (const std::string& place : module_places(module))
    out.push_back(cat(place, "/", path, "/", name));
  out.push_back(cat(path, "/", name));
  return out;
}

std::vector<ForeignKeyInfo> verl_info() { return foreign::table_info(verl_table()); }

bool counts_something(const std::string& key) {
  for (const char* word : {"micro_batch_size", "virtual_pipeline", "expert_tensor", "max_model_len",
                           "gen_batch_size", "moe_tensor", "num_layers_in", ".vpp", ".etp"})
    if (key.find(word) != std::string::npos) return true;
  return false;
}

}  // namespace

const VerlLayout& VerlWorker::layout() const {
  if (strategy == "megatron") return megatron;
  if (strategy == "veomni") return veomni;
  if (strategy == "automodel") return automodel;
  if (strategy == "torchtitan") return torchtitan;
  if (strategy == "mlite") return lite;
  return strategy == "fsdp_turbo" ? turbo : fsdp;
}

VerlLayout& VerlWorker::layout() {
  return const_cast<VerlLayout&>(static_cast<const VerlWorker*>(this)->layout());
}

const std::vector<Key>& verl_table() {
  static const std::vector<Key> table = make_table();
  return table;
}

std::optional<std::string> verl_setting(const std::string& key, VerlSettings settings) {
  for (const Key& entry : verl_table()) {
    if (key != entry.key) continue;
    const std::string text = std::visit(
        [&](const auto& field) { return foreign::setting_text(field(settings)); }, entry.field);
    const bool unset = text == "0" && counts_something(key);
    return unset || text.empty() ? "null" : text;
  }
  return std::nullopt;
}

Framework verl_framework() {
  return {"verl",
          parse_verl,
          import_verl,
          export_verl,
          verl_info,
          verl_moves,
          verl_launch_keys,
          verl_config_files,
          verl_program_files,
          verl_program_keys,
          verl_beside,
          ""};
}

}  // namespace braid::inline foreign
