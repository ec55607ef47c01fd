// Options of optimizers and of the steps of training.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/key_facts.h"

namespace braid::inline config {

struct OptimizerConfig {
  std::string name = "adamw";
  double lr = 1e-6;
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool decay_norms = false;
  std::string schedule = "constant";
  int64_t warmup_steps = 0;
  double min_lr_ratio = 0;
  double max_grad_norm = 1;
};

template <class V>
void visit(V& v, OptimizerConfig& o) {
  v("name", o.name, "sgd: plain gradient descent, without moments", one_of("adamw | sgd"),
    key::not_priced("states are priced as those of adamw"));
  v("lr", o.lr, "learning rate", above_to(0, 1));
  v("betas", o.betas, "adamw: two numbers", from_to_below(0, 1));
  v("eps", o.eps, "adamw: added to the denominator", above(0));
  v("weight_decay", o.weight_decay, "decoupled (Loshchilov & Hutter, 2019); 0 = off", at_least(0));
  v("decay_norms", o.decay_norms, "weight_decay also shrinks norms and biases");
  v("schedule", o.schedule, "of the learning rate after the warm-up",
    one_of("constant | linear | cosine"));
  v("warmup_steps", o.warmup_steps, "optimizer steps", counted(0, kMostSteps));
  v("min_lr_ratio", o.min_lr_ratio, "floor of the schedule as a share of lr", between(0, 1));
  v("max_grad_norm", o.max_grad_norm, "global norm; 0 = off", at_least(0));
}

struct OptimConfig {
  OptimizerConfig actor;
  OptimizerConfig critic;
  OptimizerConfig reward;
};

template <class V>
void visit(V& v, OptimConfig& o) {
  v("actor", o.actor, "the policy (ppo, grpo, sft)");
  v("critic", o.critic, "the value model (ppo)");
  v("reward", o.reward, "the reward model (rm)");
}

struct TrainConfig {
  int64_t total_steps = 100;
  int64_t total_episodes = 0;
  int64_t epochs_per_rollout = 1;
  int64_t minibatches = 1;
  int64_t micro_tokens = 4096;
  int64_t seed = 0;
  int64_t threads = 0;
  std::string share_prompts = "auto";
  std::string reduction = "auto";
  bool recompute = false;  // activation checkpointing
  double memory_limit_gib = 0;
  bool rehearse = true;
  std::string offload = "auto";
  std::string on_nonfinite = "stop";
  int64_t max_skipped_steps = 3;
  int64_t max_idle_steps = 20;
};

template <class V>
void visit(V& v, TrainConfig& o) {
  v("total_steps", o.total_steps, "steps: one rollout each (sft, rm: one optimizer step each)",
    counted(1, kMostSteps), key::free_on_resume);
  v("total_episodes", o.total_episodes,
    "sequences in all, instead of total_steps; 0 = total_steps counts", counted(0, 1e15),
    key::free_on_resume);
  v("epochs_per_rollout", o.epochs_per_rollout, "passes over the sequences of one rollout",
    counted(1, 1e6), key::priced);
  v("minibatches", o.minibatches,
    "optimizer steps per epoch over one rollout (a count, not a size)", counted(1, kMostCount),
    key::priced);
  v("micro_tokens", o.micro_tokens,
    "tokens of one forward and backward, whose gradients are added up to those of a mini-batch "
    "(gradient accumulation); memory and speed (results to rounding)",
    counted(1, kMostSteps), key::chosen_by_plan);
  v("seed", o.seed,
    "of sampling, initial weights and the order of mini-batches; runs are deterministic");
  v("threads", o.threads, "compute threads; 0 = all cores", between(0, 1024),
    key::not_priced("devices have the rates of cluster"), key::free_on_resume);
  v("share_prompts", o.share_prompts,
    "auto: the prompt of the samples that share it is computed once for those in one micro-batch, "
    "in scoring and training (rollout.samples_per_prompt above 1); never: once per sample; speed "
    "and memory (results to rounding)",
    one_of("auto | never"), key::priced);
  v("reduction", o.reduction,
    "how tensor-parallel ranks sum. ordered: in the order of the ranks, so that a row has the same "
    "bits whatever is beside it; native: the backend's all-reduce and reduce-scatter, which send "
    "less; auto: ordered on the CPU, native on GPUs (gradients of data-parallel ranks are summed "
    "by "
    "the backend in both); results to rounding",
    one_of("auto | ordered | native"), key::priced, key::read_if(ReadIf::kTensorParallel));
  v("recompute", o.recompute,
    "gradient checkpointing (activation checkpointing): compute the layers' activations again in "
    "the backward; memory and speed only",
    key::chosen_by_plan, key::free_on_resume);
  v("memory_limit_gib", o.memory_limit_gib,
    "device: cpu: what tensors of each rank may hold; 0 = not limited", at_least(0),
    key::not_priced("plan.memory_limit_gib says what a plan may take"), key::read_if(ReadIf::kCpu),
    key::free_on_resume);
  v("rehearse", o.rehearse,
    "run the longest micro-batch of each call and fill the KV cache once before the first step, "
    "where memory is limited; false: what does not fit is found when it comes",
    key::no_cost("happens beside the steps that are priced"), key::free_on_resume);
  v("offload", o.offload,
    "auto: the weights of frozen roles leave memory while they rest, on the CPU to a file, else to "
    "host memory; off: they stay in memory; memory only",
    one_of("auto | off"),
    key::not_priced("the plan says what waits on the host; fix it in a plan file (plan.file)"),
    key::free_on_resume);
  v("on_nonfinite", o.on_nonfinite, "what a gradient that is not finite does",
    one_of("stop | skip"), key::free_on_resume);
  v("max_skipped_steps", o.max_skipped_steps, "skip: give up after this many in a row",
    counted(0, kMostSteps), key::read_if(ReadIf::kSkipping), key::free_on_resume);
  v("max_idle_steps", o.max_idle_steps,
    "the run is saved and ends after this many steps in a row from which a trained role learns "
    "nothing; 0 = it goes on",
    counted(0, kMostSteps), key::free_on_resume);
}

}  // namespace braid::inline config
