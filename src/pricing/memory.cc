#include "pricing/memory.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "base/units.h"
#include "pricing/widths.h"

namespace braid::inline pricing {
namespace {

constexpr double kHalf = 2;  // bytes of a 16-bit number
constexpr double kUncertainShare = 0.05;
constexpr double kDefaultLoraRank = 16;

// Parameters of the fullest stage on one device before data-parallel sharding.
struct StageParameters {
  double shared = 0;
  double experts = 0;
  double layers = 0;
};

StageParameters stage_parameters(const ModelSize& model, const TrainLayout& layout) {
  const double routed = static_cast<double>(routed_expert_params(model));
  const double ends = static_cast<double>(embedding_params(model) +
                                          (model.tied_embeddings ? 0 : head_params(model)));
  const double inner = static_cast<double>(total_params(model)) - routed - ends;
  StageParameters held;
  held.layers = std::ceil(static_cast<double>(model.layers) / layout.pp);
  const double share = held.layers / model.layers;
  held.shared = (inner * share + (layout.pp > 1 ? ends / 2 : ends)) / layout.tp;
  held.experts = routed * share / layout.ep;
  return held;
}

// How many of dp x cp ranks share what ZeRO shards from this stage on.
double shards(const TrainLayout& layout, int from_stage, bool experts) {
  if (layout.zero_stage < from_stage) return 1;
  const double ranks = layout.dp * layout.cp;
  return experts ? std::max(1.0, ranks * layout.tp / layout.ep) : ranks;
}

double sharded(const StageParameters& held, const TrainLayout& layout, int from_stage) {
  return held.shared / shards(layout, from_stage, false) +
         held.experts / shards(layout, from_stage, true);
}

double adapter_parameters(const ModelSize& model, const TrainLayout& layout, double rank) {
  const Trainable trainable{true, static_cast<int64_t>(rank)};
  return static_cast<double>(trainable_params(model, trainable)) /
         (layout.tp * layout.pp * layout.ep);
}

void add_states(const ModelSize& model, const TrainLayout& layout, const TrainMemoryWork& memory,
                const Efficiency& e, MemoryParts* parts) {
  const StageParameters held = stage_parameters(model, layout);
  const OptimizerMemory& optimizer = memory.optimizer;
  parts->weights = optimizer.weight_bytes * sharded(held, layout, 3);
  const double gradient_bytes =
      optimizer.gradient_bytes > 0 ? optimizer.gradient_bytes : e.mem_gradient_bytes;
  if (optimizer.lora_rank > 0) {
    const double adapters = adapter_parameters(model, layout, optimizer.lora_rank);
    parts->gradients = adapters * gradient_bytes / shards(layout, 2, false);
    parts->optimizer = adapters * optimizer.state_bytes / shards(layout, 1, false);
    return;
  }
  parts->gradients = gradient_bytes * sharded(held, layout, 2);
  parts->optimizer = optimizer.state_bytes * sharded(held, layout, 1);
  if (memory.eager) parts->step_buffers = e.mem_step_bytes * sharded(held, layout, 1);
}

// Two blocks in 16 bit with prefetching, the ends of the model, and the block whose gradients are
// being reduced; or what an engine that keeps gathered weights holds of them.
double gathered_bytes(const ModelSize& model, const TrainLayout& layout,
                      const TrainMemoryWork& memory) {
  if (layout.zero_stage < 3 || layout.dp * layout.cp == 1) return 0;
  const double block = static_cast<double>(attention_params(model)) +
                       (model.experts > 0 ? static_cast<double>(moe_layer_params(model)) / layout.ep
                                          : static_cast<double>(dense_mlp_params(model)));
  const double ends = static_cast<double>(embedding_params(model) +
                                          (model.tied_embeddings ? 0 : head_params(model)));
  const double reduced = memory.optimizer.lora_rank > 0 ? 0 : block * 4;
  if (memory.keeps_gathered) {
    const StageParameters held = stage_parameters(model, layout);
    return kHalf * (held.shared + held.experts);
  }
  return (kHalf * (2 * block + ends) + reduced) / layout.tp;
}

LayerKind main_kind(const ModelSize& model) {
  return model.experts > 0 ? LayerKind::kMoe : LayerKind::kDense;
}

double kept_share(StatedRecompute recompute, const Efficiency& e) {
  switch (recompute) {
    case StatedRecompute::kNone:
      return 1;
    case StatedRecompute::kSelective:
      return e.mem_selective_share;
    case StatedRecompute::kUnknown:
      return e.mem_unknown_share;
    case StatedRecompute::kFull:
      return 0;
  }
  return 1;
}

// Activations of `layers` layers for one micro-batch, and the layer being worked on under
// recomputation.
struct StageActivations {
  double per_micro_batch = 0;
  double working = 0;
};
StageActivations stage_activations(const ModelSize& model, const TrainLayout& layout,
                                   const TrainStepWork& work, const TrainMemoryWork& memory,
                                   const Efficiency& e) {
  const double tokens = work.micro_batch * work.seq_len / layout.cp;
  const double layers = std::ceil(static_cast<double>(model.layers) / layout.pp);
  const double factor = memory.eager || !work.fused ? e.mem_eager_factor : e.mem_fused_factor;
  const double layer =
      tokens * factor *
      activation_bytes_per_token(model, main_kind(model), layout.tp, layout.sequence_parallel);
  const double input = tokens * kHalf * model.hidden / (layout.sequence_parallel ? layout.tp : 1);
  const double kept = kept_share(work.recompute, e);
  StageActivations out;
  out.per_micro_batch =
      layers * (kept * layer + (kept < 1 && !memory.offload_activations ? input : 0));
  out.working = e.mem_work_layers * layer * (1 - kept) + layer * e.mem_work_share;
  return out;
}

double logit_bytes(const ModelSize& model, const TrainLayout& layout, const TrainStepWork& work,
                   const TrainMemoryWork& memory, const Efficiency& e) {
  if (memory.fused_loss) return 0;
  const double tokens = work.micro_batch * work.seq_len / layout.cp;
  // A policy loss computed operator by operator keeps log-probabilities and their softmax in 32 bit
  // beside the logits.
  const double policy = memory.eager && memory.policy_loss ? 8 : 0;
  return tokens * static_cast<double>(model.vocab) / layout.tp *
         ((memory.eager ? e.mem_logit_eager_bytes : e.mem_logit_bytes) + policy);
}

double number_after(const std::string& text, const std::string& word, double fallback) {
  const size_t at = text.find(word);
  if (at == std::string::npos) return fallback;
  double value = 0;
  size_t i = at + word.size();
  bool any = false;
  for (; i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])); ++i, any = true)
    value = 10 * value + (text[i] - '0');
  return any ? value : fallback;
}

}  // namespace

double adapter_rank(const std::string& optimizer) {
  return number_after(optimizer, "rank ", kDefaultLoraRank);
}

Result<OptimizerMemory> parse_optimizer_memory(const std::string& text) {
  const auto has = [&](std::string_view phrase) { return text.find(phrase) != std::string::npos; };
  if (has("adapters"))
    return OptimizerMemory{has("32-bit base") ? 4.0 : 2.0, kMasterAndMoments, 4,
                           adapter_rank(text)};
  if (has("8-bit")) return OptimizerMemory{2, has("32-bit master") ? 6.0 : 2.0, 0, 0};
  if (has("16-bit states")) return OptimizerMemory{2, 8, 0, 0};
  if (has("32-bit")) return OptimizerMemory{2, kMasterAndMoments, 0, 0};
  if (has("16-bit")) return OptimizerMemory{2, 4, 2, 0};
  if (has("adam")) return OptimizerMemory{2, kMasterAndMoments, 0, 0};
  return invalid_input(
      cat("the optimizer '", text, "' does not say the width of weights and states"));
}

double peak_bytes(const MemoryParts& p) {
  const double states = p.weights + p.gradients + p.optimizer + p.fixed;
  return states + std::max(p.activations + p.logits + p.gathered + p.kv_cache, p.step_buffers);
}

double activation_bytes_per_token(const ModelSize& model, LayerKind kind, int tp,
                                  bool sequence_parallel, double width) {
  const double hidden = static_cast<double>(model.hidden);
  const double query = attention_width(model),
               kv = static_cast<double>(model.kv_heads * model.head_dim);
  const double whole = 4 * hidden;  // inputs of both norms, of attention and of the MLP
  const double attention = 2 * query + 2 * (model.mla ? query : kv);
  const double copies = model.gated_mlp ? 3 : 2;
  double mlp = copies * static_cast<double>(model.intermediate);
  if (kind == LayerKind::kMoe)
    mlp = (model.top_k + model.shared_experts) *
          (copies * static_cast<double>(model.expert_intermediate) + 2 * hidden);
  return width * (whole / (sequence_parallel ? tp : 1) + (attention + mlp) / tp);
}

MemoryParts train_memory(const ModelSize& model, const TrainLayout& layout,
                         const TrainStepWork& work, const TrainMemoryWork& memory,
                         const Efficiency& e) {
  MemoryParts parts;
  add_states(model, layout, memory, e, &parts);
  const StageActivations stage = stage_activations(model, layout, work, memory, e);
  const double micro_batches = std::max(1.0, work.global_batch / (work.micro_batch * layout.dp));
  const double flight = std::min<double>(layout.pp, micro_batches);
  const double interleaved = layout.vpp > 1 ? 1 + (layout.pp - 1.0) / (layout.pp * layout.vpp) : 1;
  const double first = flight * interleaved * stage.per_micro_batch;
  const double logits = logit_bytes(model, layout, work, memory, e);
  const bool last_is_fuller = layout.pp > 1 && stage.per_micro_batch + logits > first;
  parts.activations = (last_is_fuller ? stage.per_micro_batch : first) + stage.working;
  parts.logits = layout.pp == 1 || last_is_fuller ? logits : 0;
  parts.gathered = gathered_bytes(model, layout, memory);
  parts.fixed = e.mem_fixed_gib * kGib + (memory.sharded_buffers ? e.mem_bucket_gib * kGib : 0);
  if (memory.offload_states) parts.weights = parts.gradients = parts.optimizer = 0;
  if (memory.offload_optimizer) parts.optimizer = 0;
  return parts;
}

MemoryParts generate_memory(const ModelSize& model, const GenerateLayout& layout,
                            const GenerateWork& work, const Efficiency& e) {
  MemoryParts parts;
  const double devices = layout.tp * layout.pp,
               sequences = std::max(1.0, work.concurrency / layout.replicas);
  const double split = static_cast<double>(kv_cache_parts(model, layout.tp) * layout.pp);
  parts.weights = static_cast<double>(total_params(model)) * layout.weight_bytes / devices;
  parts.kv_cache = sequences * (work.prompt_len + work.output_len) *
                   kv_bytes_per_token(model, layout.kv_bytes) / split;
  const double width = 3.0 * model.intermediate + 4.0 * model.hidden;
  parts.activations =
      e.mem_prefill_factor * sequences * work.prompt_len * kHalf * width / layout.tp;
  return parts;
}

double usable_bytes(double hbm_bytes, const Efficiency& e) {
  return hbm_bytes - e.mem_context_gib * kGib;
}

double reported_bytes(double peak, MemoryReading reading, const Efficiency& e) {
  switch (reading) {
    case MemoryReading::kAllocated:
      return peak;
    case MemoryReading::kReserved:
      return peak * e.mem_reserve_factor;
    case MemoryReading::kProcess:
      return peak * e.mem_reserve_factor + e.mem_context_gib * kGib;
    case MemoryReading::kUnstated:
      return peak * std::sqrt(e.mem_reserve_factor) + 0.5 * e.mem_context_gib * kGib;
  }
  return peak;
}

const char* fit_name(Fit fit) {
  switch (fit) {
    case Fit::kYes:
      return "yes";
    case Fit::kNo:
      return "no";
    case Fit::kUncertain:
      return "uncertain";
  }
  return "?";
}

Fit judge_fit(double peak, double hbm_bytes, const Efficiency& e) {
  const double need = peak * std::sqrt(e.mem_reserve_factor), limit = usable_bytes(hbm_bytes, e);
  if (need < limit * (1 - kUncertainShare)) return Fit::kYes;
  return need > limit * (1 + kUncertainShare) ? Fit::kNo : Fit::kUncertain;
}

}  // namespace braid::inline pricing
