// Options of the models of a run: where weights come from, adapters, exports.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/key_facts.h"

namespace braid::inline config {

struct LoraConfig {
  int64_t rank = 0;
  double alpha = 16;
  double dropout = 0;
  std::vector<std::string> targets = {"q_proj", "k_proj", "v_proj", "o_proj"};
  std::string export_as = "both";
};

template <class V>
void visit(V& v, LoraConfig& o) {
  v("rank", o.rank, "0 = train all weights", counted(0, kMostCount), key::priced, key::read_always);
  v("alpha", o.alpha, "the update is scaled by alpha / rank", above(0));
  v("dropout", o.dropout,
    "share of the numbers that an adapter reads which are left out at random in training",
    from_to_below(0, 1));
  v("targets", o.targets,
    "names of the linear layers that get an adapter; all-linear: every one but lm_head",
    key::not_priced("adapters are priced on every linear layer"));
  v("export_as", o.export_as,
    "merged: a whole model; adapters: PEFT's adapter_model.safetensors; both: the second in "
    "ROLE-adapter",
    one_of("merged | adapters | both"), key::read_if(ReadIf::kTrainedAdapters),
    key::free_on_resume);
}

struct ExportConfig {
  std::string dtype = "auto";
};

template <class V>
void visit(V& v, ExportConfig& o) {
  v("dtype", o.dtype,
    "of exported weights; auto: f32 where they were trained in f32, so that nothing is rounded, "
    "else as in the folder that they came from",
    one_of("auto | f32 | bf16 | f16"));
}

struct ModelConfig {
  std::string path;
  std::string config;
  std::string size;
  std::string dtype = "f32";
};

template <class V>
void visit(V& v, ModelConfig& o) {
  v("path", o.path, "Hugging Face folder; \"\" with `config` = random weights", key::file);
  v("config", o.config, "config.json alone: random initial weights",
    key::read_if(ReadIf::kWithoutModelPath), key::file);
  v("size", o.size, "planning without weights: catalogue name (llama2-7b) or config.json",
    key::read_by_planning);
  v("dtype", o.dtype, "of weights in computation; bf16 keeps f32 master weights",
    one_of("f32 | bf16"));
}

struct TokenizerConfig {
  std::string path;
};

template <class V>
void visit(V& v, TokenizerConfig& o) {
  v("path", o.path, "folder or tokenizer.json; \"\" = model.path", key::file);
}

struct RoleConfig {
  std::string path;
  std::string size;
};

template <class V>
void visit(V& v, RoleConfig& o) {
  v("path", o.path, "Hugging Face folder; \"\" = taken from model.path", key::priced, key::file);
  v("size", o.size, "planning without weights, as model.size; \"\" = as its source",
    key::read_by_planning, key::priced);
}

struct ReferenceConfig : RoleConfig {
  int64_t sync_every = 0;
  double ema = 0;
};

template <class V>
void visit(V& v, ReferenceConfig& o) {
  visit(v, static_cast<RoleConfig&>(o));
  v("sync_every", o.sync_every,
    "after every so many steps the reference moves to the policy's weights; 0 = it stays",
    counted(0, kMostSteps));
  v("ema", o.ema,
    "with sync_every: the share of its own weights that a reference keeps when it moves; 0 = it "
    "becomes the policy",
    from_to_below(0, 1));
}

struct CriticConfig : RoleConfig {
  bool shared_trunk = false;
  std::string init_from;
  int64_t warmup_steps = 0;
};

template <class V>
void visit(V& v, CriticConfig& o) {
  visit(v, static_cast<RoleConfig&>(o));
  v("shared_trunk", o.shared_trunk,
    "the policy is the critic too: one model with two heads, one optimizer (optim.actor), one "
    "update "
    "with both losses",
    key::priced);
  v("init_from", o.init_from, "where path is \"\": weights to start from; \"\" = policy",
    one_of("| policy | reward_model | random"), key::priced, key::read_if(ReadIf::kCriticSource));
  v("warmup_steps", o.warmup_steps, "steps at the start in which only the critic is trained",
    counted(0, kMostSteps),
    key::not_priced(
        "a step after the warm-up is planned; in a step of the warm-up the actor is not trained"));
}

}  // namespace braid::inline config
