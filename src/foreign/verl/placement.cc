// Where the parts of a verl job run, and how each worker is cut over its devices.
#include <algorithm>

#include "base/text.h"
#include "foreign/verl/verl.h"
#include "plan/validate.h"

namespace braid::inline foreign {
namespace {

// Appends the nodes of a pool; its mesh is the new devices.
Status append_pool(const char* what, const VerlPool& pool, const ImportOptions& options,
                   VerlPlacement* out, DeviceMesh* mesh) {
  const auto nodes = foreign::imported_cluster(options, pool.nodes, pool.per_node);
  if (!nodes.ok()) return nodes.status().at(what);
  const int before = device_count(out->cluster);
  out->cluster.nodes.insert(out->cluster.nodes.end(), nodes->nodes.begin(), nodes->nodes.end());
  mesh->devices.clear();
  for (int d = before; d < device_count(out->cluster); ++d) mesh->devices.push_back(DeviceId{d});
  return ok_status();
}

int as_size(int64_t value) { return static_cast<int>(std::clamp<int64_t>(value, 0, 1 << 20)); }

Recompute recompute_of(const VerlWorker& worker) {
  const std::string& said = worker.layout().granularity;
  if (said == "full") return Recompute::kFull;
  if (said == "selective") return Recompute::kSelective;
  if (worker.megatron_like() || worker.strategy == "torchtitan") return Recompute::kNone;
  return worker.checkpointing ? Recompute::kFull : Recompute::kNone;
}

// ZeRO as the backend shards: Megatron its optimizer, the others everything.
void set_sharding(const VerlWorker& worker, bool trains, Strategy* s) {
  const VerlLayout& layout = worker.layout();
  const int copies = dense_copies(*s);
  if (copies == 1) return;
  if (worker.megatron_like() && !layout.fully_sharded) {
    s->zero_stage = trains ? 1 : 0;
    return;
  }
  int64_t ranks = layout.shards > 0 ? layout.shards : copies;
  if (layout.copies > 1) ranks = std::max<int64_t>(1, copies / layout.copies);
  if (ranks == 1) return;
  s->zero_stage = trains && !layout.reshard ? 2 : 3;
  if (ranks < copies && copies % ranks == 0) s->zero_ranks = static_cast<int>(ranks);
}

// Without a size of their own, experts are cut as tensors are, as far as the devices of a stage go.
void fit_expert_tp(Strategy* s) {
  if (s->ep == 1 || s->expert_tp > 0) return;
  const int devices = s->dp * s->cp * s->tp;
  int fits = s->tp;
  while (fits > 1 && (s->tp % fits != 0 || devices % (s->ep * fits) != 0)) --fits;
  if (fits < s->tp) s->expert_tp = fits;
}

// Layers of each part where the first or the last stage has its own number.
void set_stages(const VerlLayout& layout, int64_t layers, Strategy* s) {
  if (s->pp < 2 || s->interleave > 1 || (layout.first_layers == 0 && layout.last_layers == 0))
    return;
  std::vector<int64_t> stages(s->pp, 0);
  int64_t rest = layers, others = s->pp;
  if (layout.first_layers > 0)
    stages.front() = layout.first_layers, rest -= layout.first_layers, --others;
  if (layout.last_layers > 0)
    stages.back() = layout.last_layers, rest -= layout.last_layers, --others;
  if (rest < others) return;
  for (int64_t& stage : stages)
    if (stage == 0 && others > 0) {
      stage = (rest + others - 1) / others;
      rest -= stage, --others;
    }
  if (rest == 0) s->stage_layers = stages;
}

// Micro-batches of a forward or of a training step, as a number or a token budget.
void set_micro_batches(const VerlWorker& worker, bool trains, int64_t each, Strategy* s) {
  const bool dynamic = trains ? worker.dynamic : worker.infer_dynamic;
  const int64_t tokens = trains ? worker.max_tokens : worker.infer_max_tokens;
  const int64_t size = trains ? worker.micro_batch : worker.infer_micro_batch;
  constexpr int64_t kMost = int64_t{1} << 32;
  if (dynamic) {
    s->micro_tokens = std::min(kMost, tokens) * s->cp;
  } else if (size > 0) {
    s->micro_batches = std::max<int64_t>(1, (each + size - 1) / size);
    while (each % s->micro_batches != 0) ++s->micro_batches;
  }
}

void set_precision(const VerlLayout& layout, Strategy* s) {
  if (layout.fp8 != "null" && lowered(layout.fp8) != "false")
    s->precision = Precision::kFp8;
  else if (layout.dtype == "float16" || layout.dtype == "fp16")
    s->precision = Precision::kFp16;
}

}  // namespace

Result<VerlPlacement> place_verl(const VerlSettings& s, const ImportOptions& options) {
  VerlPlacement out;
  BRAID_TRY(append_pool("trainer.nnodes", s.trainer, options, &out, &out.trainer));
  out.rollout = out.reward = out.teacher = out.trainer;
  if (s.rollout_pool.nodes > 0) {
    VerlPool pool = s.rollout_pool;
    if (pool.per_node == 0) pool.per_node = s.trainer.per_node;
    BRAID_TRY(append_pool("rollout.nnodes", pool, options, &out, &out.rollout));
  }
  const bool reward_apart = s.reward_enabled && s.reward_apart && s.reward_pool.nodes > 0;
  if (reward_apart)
    BRAID_TRY(append_pool("reward_model.nnodes", s.reward_pool, options, &out, &out.reward));
  if (s.distils && s.teacher_pool.nodes > 0)
    BRAID_TRY(append_pool("distillation.nnodes", s.teacher_pool, options, &out, &out.teacher));
  return out;
}

Strategy verl_worker_strategy(const VerlWorker& worker, const PlanningProblem& problem,
                              const Call& call, int64_t devices) {
  const bool trains = call.kind == CallKind::kTrainStep;
  const VerlLayout& layout = worker.layout();
  const ModelSize& size = model_of(problem, call.role).spec;
  Strategy s;
  s.tp = as_size(layout.tp), s.pp = as_size(layout.pp), s.cp = as_size(layout.cp);
  if (size.experts > 0) s.ep = as_size(layout.ep), s.expert_tp = as_size(layout.expert_tp);
  if (size.experts > 0 && !worker.megatron_like() && s.ep > 1) s.expert_tp = 1;
  if (expert_tp(s) == s.tp) s.expert_tp = 0;
  s.interleave = trains ? std::max(1, as_size(layout.vpp)) : 1;
  s.sequence_parallel = s.tp > 1 && layout.sequence_parallel;
  const int64_t parts = std::max<int64_t>(1, int64_t{s.tp} * s.pp * s.cp);
  s.dp = static_cast<int>(std::max<int64_t>(1, devices / parts));
  fit_expert_tp(&s);
  set_sharding(worker, trains, &s);
  if (trains) s.recompute = recompute_of(worker);
  set_stages(layout, size.layers, &s);
  set_precision(layout, &s);
  const int64_t samples = trains ? minibatch_samples(problem) : call_samples(problem, call);
  set_micro_batches(worker, trains, std::max<int64_t>(1, samples / s.dp), &s);
  return s;
}

}  // namespace braid::inline foreign
