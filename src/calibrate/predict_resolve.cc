// From a measurement row to a case that can be priced.
#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "calibrate/predict.h"

namespace braid::inline calibrate {
namespace {

bool says(const Measurement& row, std::string_view phrase) {
  return row.note.find(phrase) != std::string::npos;
}

Status missing(const char* column) { return invalid_input(cat("the row does not state ", column)); }

Result<double> needed(const std::optional<double>& value, const char* column) {
  if (!value) return missing(column);
  return *value;
}

Precision precision_of(const Measurement& row) {
  const auto parsed = parse_precision(row.precision.empty() ? "bf16" : row.precision);
  return parsed.ok() ? *parsed : Precision::kBf16;
}

StatedRecompute recompute_of(const Measurement& row) {
  if (row.recompute == "none") return StatedRecompute::kNone;
  if (row.recompute == "selective") return StatedRecompute::kSelective;
  if (row.recompute == "full") return StatedRecompute::kFull;
  return StatedRecompute::kUnknown;
}

// Their product, or a number beyond any cluster.
int64_t devices_of(std::initializer_list<int> degrees) {
  constexpr int64_t kBeyond = int64_t{1} << 32;
  int64_t product = 1;
  for (const int degree : degrees) product = std::min(product * degree, kBeyond);
  return product;
}

Result<TrainLayout> train_layout(const Measurement& row, int devices, const GpuSpec& gpu) {
  TrainLayout layout;
  layout.tp = row.tp.value_or(1);
  layout.pp = row.pp.value_or(1);
  layout.cp = row.cp.value_or(1);
  layout.ep = row.ep.value_or(1);
  layout.vpp = row.vpp.value_or(1);
  const int64_t others = devices_of({layout.tp, layout.pp, layout.cp});
  layout.dp = row.dp.value_or(static_cast<int>(std::max<int64_t>(1, devices / others)));
  const int64_t used = devices_of({layout.tp, layout.pp, layout.cp, layout.dp});
  if (used != devices)
    return invalid_input(
        cat("dp x tp x pp x cp is ", used, ", but the row has ", devices, " devices"));
  layout.zero_stage = row.zero_stage.value_or(layout.dp > 1 ? 1 : 0);
  layout.gpus_per_node = row.gpus_per_node.value_or(gpu.gpus_per_node);
  layout.nic_gbps_per_gpu = row.internode_gbps_per_gpu.value_or(0);
  layout.sequence_parallel = engine_traits(row.engine).sequence_parallel;
  if (says(row, "sequence parallel")) layout.sequence_parallel = !says(row, "no sequence parallel");
  return layout;
}

TrainStepWork train_work(const Measurement& row, double sequences, double seq_len, int dp,
                         double unstated_micro_batch) {
  TrainStepWork work;
  work.global_batch = sequences;
  work.seq_len = seq_len;
  work.micro_batch =
      std::min(row.micro_batch.value_or(unstated_micro_batch), std::max(1.0, sequences / dp));
  work.recompute = recompute_of(row);
  work.lora_rank = row.tuning == "lora" ? adapter_rank(row.optimizer) : 0;
  work.policy_loss = says(row, "RL loss");
  const bool plain_norm = says(row, "flash attention2") && !says(row, "RMS kernel");
  work.fused = !says(row, "eager") && !plain_norm;
  work.graphs = engine_traits(row.engine).graphs;
  work.loops_experts = engine_traits(row.engine).loops_experts;
  work.reduce_bytes = says(row, "PURE") ? 2 : 4;
  work.offload_states = says(row, "offload: params+grads+optimizer");
  return work;
}

Result<TrainCase> resolve_train(const Measurement& row, const GpuSpec& gpu) {
  TrainCase work;
  BRAID_ASSIGN(work.model, find_model(row.model));
  BRAID_ASSIGN(const double length, needed(row.seq_len, "seq_len"));
  BRAID_ASSIGN(const double batch, needed(row.global_batch, "global_batch"));
  BRAID_ASSIGN(work.layout, train_layout(row, *row.n_gpus, gpu));
  work.work = train_work(row, batch, length, work.layout.dp, 1);
  BRAID_TRY(validate_train(work.model, work.layout, work.work));
  return work;
}

double weight_bytes(Precision precision) { return precision_bytes(precision); }

double kv_bytes(const Measurement& row, Precision precision) {
  const auto stated = parse_precision(row.kv_precision);
  if (stated.ok()) return precision_bytes(*stated);
  return precision == Precision::kF32 ? 4 : 2;
}

GenerateLayout generate_layout(const Measurement& row, Precision precision, const GpuSpec& gpu) {
  const EngineTraits traits = engine_traits(row.engine);
  GenerateLayout layout;
  layout.weight_bytes = weight_bytes(precision);
  layout.kv_bytes = kv_bytes(row, precision);
  layout.graphs = traits.graphs && !says(row, "eager");
  layout.pipelines_batches = traits.pipelines_batches;
  layout.gpus_per_node = row.gpus_per_node.value_or(gpu.gpus_per_node);
  return layout;
}

Result<GenerateCase> resolve_generate(const Measurement& row, const GpuSpec& gpu) {
  GenerateCase work;
  BRAID_ASSIGN(work.model, find_model(row.model));
  BRAID_ASSIGN(work.work.prompt_len, needed(row.prompt_len, "prompt_len"));
  BRAID_ASSIGN(work.work.output_len, needed(row.output_len, "output_len"));
  work.layout = generate_layout(row, precision_of(row), gpu);
  work.layout.tp = row.tp.value_or(1);
  work.layout.pp = row.pp.value_or(1);
  const int64_t engine = devices_of({work.layout.tp, work.layout.pp});
  work.layout.replicas =
      row.dp.value_or(static_cast<int>(std::max<int64_t>(1, *row.n_gpus / engine)));
  const int64_t used = devices_of({work.layout.replicas, work.layout.tp, work.layout.pp});
  if (used > *row.n_gpus)
    return invalid_input(
        cat("dp x tp x pp is ", used, ", but the row has ", *row.n_gpus, " devices"));
  work.work.concurrency = row.concurrency.value_or(0);
  work.work.requests = row.requests.value_or(0);
  work.phase = row.phase;
  return work;
}

Result<CollectiveCase> resolve_collective(const Measurement& row, const GpuSpec& gpu) {
  CollectiveCase work;
  if (row.collective.empty()) return missing("collective");
  BRAID_ASSIGN(work.op, parse_collective(row.collective));
  BRAID_ASSIGN(work.bytes, needed(row.bytes, "bytes"));
  if (*row.n_gpus < 2) return invalid_input("a collective needs at least two devices");
  if (row.coll_algo == "ring") work.algorithm = CollectiveAlgorithm::kRing;
  if (row.coll_algo == "nvls") work.algorithm = CollectiveAlgorithm::kNvls;
  work.group = make_group(gpu, *row.n_gpus, 1, row.gpus_per_node.value_or(gpu.gpus_per_node),
                          row.internode_gbps_per_gpu.value_or(0));
  return work;
}

RlPlacement placement_of(const Measurement& row) {
  if (row.placement == "split") return RlPlacement::kSplit;
  if (row.placement == "one_step_off") return RlPlacement::kOneStepOff;
  if (row.placement == "async") return RlPlacement::kAsync;
  return RlPlacement::kColocated;
}

// The smallest power of two of devices that holds the weights in half of their memory.
int smallest_engine(const ModelSize& model, const GenerateLayout& layout, const GpuSpec& gpu,
                    int devices) {
  int tp = 1;
  while (tp * 2 <= devices && total_params(model) * layout.weight_bytes / tp > gpu.hbm_bytes * 0.5)
    tp *= 2;
  return tp;
}

// Tokens per micro-batch of an RL trainer where a row does not state its micro-batch.
constexpr double kUnstatedTokenBudget = 4096;

// Sequences of mean length in a micro-batch of an RL trainer. A stated micro-batch is one of
// full-length sequences: shorter ones are packed into its tokens (dynamic batches, sequence
// packing).
double packed_micro_batch(const Measurement& row, double mean_length) {
  if (!row.micro_batch) return std::max(1.0, std::floor(kUnstatedTokenBudget / mean_length));
  return *row.micro_batch * std::max(1.0, row.max_output_len.value_or(0) / mean_length);
}

// ZeRO-3 keeps 16 bytes per parameter spread over all devices; engines that generate with them move
// what does not fit into host memory.
bool states_fit(const ModelSize& model, int dp, const GpuSpec& gpu) {
  constexpr double kStateBytes = 16;
  return total_params(model) * kStateBytes / dp < 0.9 * gpu.hbm_bytes;
}

Result<RlCase> resolve_rl(const Measurement& row, const GpuSpec& gpu) {
  RlCase work;
  BRAID_ASSIGN(work.model, find_model(row.model));
  if (!row.critic_model.empty()) {
    BRAID_ASSIGN(work.critic, find_model(row.critic_model));
  }
  BRAID_ASSIGN(const double prompt, needed(row.prompt_len, "prompt_len"));
  BRAID_ASSIGN(const double output,
               needed(row.output_len, "output_len (max_output_len is only a limit)"));
  BRAID_ASSIGN(const double prompts, needed(row.prompts, "prompts per step"));
  const double sequences = prompts * row.samples_per_prompt.value_or(1);
  RlWork& rl = work.work;
  rl.placement = placement_of(row);
  rl.generate = {prompt, output,    row.max_output_len.value_or(0),
                 0,      sequences, row.concurrency.value_or(0)};
  if (rl.generate.max_output_len > 0)
    rl.generate.max_output_len = std::max(rl.generate.max_output_len, output);
  work.generate_precision = precision_of(row);
  rl.generate_layout = generate_layout(row, work.generate_precision, gpu);
  const int rollout = row.rollout_gpus.value_or(*row.n_gpus),
            train = row.train_gpus.value_or(*row.n_gpus);
  if (std::max(rollout, train) > *row.n_gpus || row.gen_tp.value_or(1) > rollout)
    return invalid_input("train_gpus, rollout_gpus or gen_tp exceed the devices that the row has");
  rl.generate_layout.tp =
      row.gen_tp.value_or(smallest_engine(work.model, rl.generate_layout, gpu, rollout));
  rl.generate_layout.replicas = std::max(1, rollout / rl.generate_layout.tp);
  BRAID_ASSIGN(rl.train_layout, train_layout(row, train, gpu));
  rl.training_engine_generates = engine_family(row.engine) == "deepspeed-chat";
  if (rl.training_engine_generates) rl.train_layout.zero_stage = row.zero_stage.value_or(3);
  Measurement packed = row;
  packed.micro_batch = packed_micro_batch(row, prompt + output);
  rl.train = train_work(packed, sequences, prompt + output, rl.train_layout.dp, 1);
  if (rl.training_engine_generates)
    rl.train.offload_states = !states_fit(work.model, rl.train_layout.dp, gpu);
  rl.mini_batch = row.mini_batch.value_or(0);
  rl.logprob_passes = 2;
  work.phase = row.phase;
  BRAID_TRY(validate_train(work.model, rl.train_layout, rl.train));
  return work;
}

MemoryReading reading_of(const Measurement& row) {
  if (row.memory_kind == "allocated") return MemoryReading::kAllocated;
  if (row.memory_kind == "reserved") return MemoryReading::kReserved;
  if (row.memory_kind == "nvidia_smi") return MemoryReading::kProcess;
  return MemoryReading::kUnstated;
}

Result<TrainMemoryWork> memory_work(const Measurement& row, const TrainCase& train) {
  const EngineTraits traits = engine_traits(row.engine);
  TrainMemoryWork memory;
  BRAID_ASSIGN(memory.optimizer, parse_optimizer_memory(row.optimizer));
  if (row.offload == "unknown") return missing("what is offloaded to host memory");
  // Data-parallel and FSDP trainers compute with a cast of the 32-bit weights, which is one of the
  // three states.
  const bool casts = train.layout.zero_stage >= 2 && !traits.sharded_buckets;
  if (casts && memory.optimizer.state_bytes == kMasterAndMoments && memory.optimizer.lora_rank == 0)
    memory.optimizer = {4, kMoments, 4, 0};
  memory.eager = !traits.graphs || says(row, "eager");
  memory.policy_loss = train.work.policy_loss || says(row, "GRPO");
  memory.keeps_gathered = traits.keeps_gathered;
  memory.fused_loss = traits.chunked_loss || (traits.chunked_policy_loss && train.work.policy_loss);
  memory.sharded_buffers =
      traits.sharded_buckets && train.layout.zero_stage >= 1 && memory.optimizer.lora_rank == 0;
  memory.offload_states = row.offload == "params+grads+optimizer";
  memory.offload_optimizer = row.offload == "optimizer";
  memory.offload_activations = row.offload == "activations";
  return memory;
}

// The peak of a step does not depend on how many micro-batches follow each other, so the batch may
// be missing.
Result<TrainMemoryCase> resolve_train_memory(const Measurement& row, const GpuSpec& gpu) {
  TrainMemoryCase out;
  BRAID_ASSIGN(out.train.model, find_model(row.model));
  BRAID_ASSIGN(const double length, needed(row.seq_len, "seq_len"));
  BRAID_ASSIGN(const double micro_batch, needed(row.micro_batch, "micro_batch"));
  BRAID_ASSIGN(out.train.layout, train_layout(row, *row.n_gpus, gpu));
  const TrainLayout& layout = out.train.layout;
  const double batch = row.global_batch.value_or(micro_batch * layout.dp * layout.pp * 2);
  out.train.work =
      train_work(row, std::max(batch, micro_batch * layout.dp), length, layout.dp, micro_batch);
  BRAID_ASSIGN(out.memory, memory_work(row, out.train));
  out.reading = reading_of(row);
  BRAID_TRY(validate_train(out.train.model, layout, out.train.work));
  return out;
}

bool phase_fits(MeasurementKind kind, const std::string& phase) {
  const bool of_generation = phase == "first_token" || phase == "decode_step";
  if (kind == MeasurementKind::kGenerate) return phase.empty() || of_generation;
  return kind == MeasurementKind::kRlStep ? !of_generation : phase.empty();
}

bool metric_fits(MeasurementKind kind, MeasuredQuantity metric) {
  switch (kind) {
    case MeasurementKind::kTrainStep:
      return metric == MeasuredQuantity::kSecondsPerStep ||
             metric == MeasuredQuantity::kTokensPerSecondPerGpu;
    case MeasurementKind::kGenerate:
      return metric == MeasuredQuantity::kOutputTokensPerSecond ||
             metric == MeasuredQuantity::kTimeUs;
    case MeasurementKind::kCollective:
      return metric == MeasuredQuantity::kBusbw || metric == MeasuredQuantity::kTimeUs;
    case MeasurementKind::kRlStep:
      return metric == MeasuredQuantity::kSecondsPerStep;
  }
  return false;
}

// Of an RL step the training phase is priced: it holds the states that other phases keep too.
Status resolve_memory(const Measurement& row, PredictionCase* out) {
  if (row.kind == MeasurementKind::kGenerate) {
    GenerateMemoryCase work;
    BRAID_ASSIGN(work.generate, resolve_generate(row, out->gpu));
    work.reading = reading_of(row);
    out->work = work;
    return ok_status();
  }
  if (row.kind == MeasurementKind::kCollective)
    return invalid_input("a collective has no memory row");
  Measurement train = row;
  if (row.kind == MeasurementKind::kRlStep && !row.seq_len) {
    BRAID_ASSIGN(const double prompt, needed(row.prompt_len, "prompt_len"));
    BRAID_ASSIGN(const double output,
                 needed(row.max_output_len ? row.max_output_len : row.output_len, "output_len"));
    train.seq_len = prompt + output;
    if (row.train_gpus) train.n_gpus = row.train_gpus;
  }
  BRAID_ASSIGN(out->work, resolve_train_memory(train, out->gpu));
  return ok_status();
}

Status resolve_work(const Measurement& row, PredictionCase* out) {
  if (row.is_memory) return resolve_memory(row, out);
  if (row.kind == MeasurementKind::kTrainStep) {
    BRAID_ASSIGN(out->work, resolve_train(row, out->gpu));
  } else if (row.kind == MeasurementKind::kGenerate) {
    BRAID_ASSIGN(out->work, resolve_generate(row, out->gpu));
  } else if (row.kind == MeasurementKind::kCollective) {
    BRAID_ASSIGN(out->work, resolve_collective(row, out->gpu));
  } else {
    BRAID_ASSIGN(out->work, resolve_rl(row, out->gpu));
  }
  return ok_status();
}

}  // namespace

EngineTraits engine_traits(const std::string& engine) {
  const std::string family = engine_family(engine);
  const auto contains = [&](std::string_view word) {
    return family.find(word) != std::string::npos;
  };
  EngineTraits traits;
  const bool eager = contains("transformers") || contains("litgpt") || contains("deepspeed") ||
                     contains("trl") || family == "ms-swift";
  traits.graphs = !eager;
  traits.chunked_policy_loss = contains("prime-rl");
  traits.chunked_loss = contains("torchtune");
  traits.keeps_gathered = contains("litgpt");
  traits.sharded_buckets = contains("deepspeed");
  traits.sequence_parallel = !contains("aleph-alpha");
  traits.pipelines_batches = !eager;
  traits.loops_experts = contains("transformers") || contains("deepspeed") || contains("trl");
  return traits;
}

Result<PredictionCase> resolve_row(const Measurement& row) {
  PredictionCase out;
  if (row.gpu.empty()) return missing("gpu");
  if (row.model.empty() && row.kind != MeasurementKind::kCollective) return missing("model");
  BRAID_TRY(check_words(row));
  BRAID_ASSIGN(out.gpu, find_gpu(row.gpu));
  if (!row.n_gpus) return missing("n_gpus");
  if (!row.is_memory && !metric_fits(row.kind, row.metric))
    return invalid_input(
        cat("metric ", metric_name(row.metric), " does not belong to ", kind_name(row.kind)));
  if (!row.is_memory && !phase_fits(row.kind, row.phase))
    return invalid_input(cat("phase ", row.phase, " does not belong to ", kind_name(row.kind)));
  constexpr double kPowerLimited = 0.8;  // as the catalogue has for a limit of 500 of 700 W
  if (says(row, "power limited"))
    out.gpu.sustained_share = std::min(out.gpu.sustained_share, kPowerLimited);
  out.n_gpus = *row.n_gpus;
  out.metric = row.metric;
  out.precision = row.kind == MeasurementKind::kRlStep ? Precision::kBf16 : precision_of(row);
  BRAID_TRY(peak_flops(out.gpu, precision_of(row)).status());
  out.key = efficiency_key(out.gpu, out.precision, row.engine);
  BRAID_TRY(resolve_work(row, &out));
  return out;
}

}  // namespace braid::inline calibrate
