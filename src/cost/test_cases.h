// Small cases that can be priced by hand, for the tests of this module.
#pragma once

#include <string>

#include "cost/measurement.h"
#include "cost/predict.h"

namespace braid {

// Software that reaches every peak and costs nothing itself: prices are then the bare formulas.
inline Efficiency ideal_efficiency() {
  Efficiency e;
  for (double Efficiency::*share : {&Efficiency::matmul_share,
                                    &Efficiency::fp8_gain,
                                    &Efficiency::fp4_gain,
                                    &Efficiency::attention_share,
                                    &Efficiency::stream_share,
                                    &Efficiency::eager_factor,
                                    &Efficiency::lora_factor,
                                    &Efficiency::rl_loss_factor,
                                    &Efficiency::head_factor,
                                    &Efficiency::expert_share,
                                    &Efficiency::tp_exposed,
                                    &Efficiency::cp_exposed,
                                    &Efficiency::ep_exposed,
                                    &Efficiency::pp_exposed,
                                    &Efficiency::dp_exposed,
                                    &Efficiency::fsdp_exposed,
                                    &Efficiency::nvlink_ring_share,
                                    &Efficiency::nvls_share,
                                    &Efficiency::pcie_share,
                                    &Efficiency::network_share,
                                    &Efficiency::decode_weight_share,
                                    &Efficiency::decode_expert_share,
                                    &Efficiency::decode_kv_share,
                                    &Efficiency::decode_matmul_share,
                                    &Efficiency::prefill_share,
                                    &Efficiency::rl_train_factor,
                                    &Efficiency::rl_infer_factor,
                                    &Efficiency::rl_generate_factor,
                                    &Efficiency::rl_reshard_gbytes_per_s,
                                    &Efficiency::stage3_generate_factor,
                                    &Efficiency::mem_fused_factor,
                                    &Efficiency::mem_eager_factor,
                                    &Efficiency::mem_reserve_factor})
    e.*share = 1;
  e.mem_work_share = 0.5;
  return e;
}

// 100 TFLOP/s, 1000 GB/s of memory, 100 GB/s of NVLink between 8 devices, 10 GB/s of network each.
inline GpuSpec toy_gpu() {
  GpuSpec gpu;
  gpu.key = "toy";
  gpu.architecture = "ampere";
  gpu.bf16_tflops = 100;
  gpu.hbm_bytes = 80.0 * (1ull << 30);
  gpu.hbm_gbytes_per_s = 1000;
  gpu.nvlink_gbytes_per_s = 100;
  gpu.pcie_gbytes_per_s = 20;
  gpu.nic_gbps_per_gpu = 80;
  gpu.gpus_per_node = gpu.nvlink_domain_gpus = 8;
  return gpu;
}

// Per layer 196608 attention and 393216 MLP parameters; a head of 256000.
inline ModelSize toy_model() {
  ModelSize model;
  model.name = "toy";
  model.layers = 4;
  model.hidden = 256;
  model.intermediate = 512;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 64;
  model.vocab = 1000;
  return model;
}

inline DeviceModel toy_device() {
  return {toy_gpu(), Precision::kBf16, ideal_efficiency(), nullptr};
}

// A training row that states everything a prediction takes.
inline Measurement train_row(const std::string& id) {
  Measurement row;
  row.id = id;
  row.kind = MeasurementKind::kTrainStep;
  row.model = "llama3-8b";
  row.gpu = "h100-80g";
  row.n_gpus = 8;
  row.gpus_per_node = 8;
  row.precision = "bf16";
  row.dp = 4;
  row.tp = 2;
  row.pp = row.cp = 1;
  row.recompute = "none";
  row.micro_batch = 1;
  row.global_batch = 128;
  row.seq_len = 4096;
  row.engine = "megatron-bridge-26.02";
  row.metric = MeasuredQuantity::kSecondsPerStep;
  return row;
}

inline Measurement generate_row(const std::string& id) {
  Measurement row;
  row.id = id;
  row.kind = MeasurementKind::kGenerate;
  row.model = "llama3-8b";
  row.gpu = "h100-80g";
  row.n_gpus = 1;
  row.precision = "bf16";
  row.tp = row.pp = 1;
  row.prompt_len = 512;
  row.output_len = 256;
  row.concurrency = 32;
  row.engine = "vllm-0.6.3";
  row.metric = MeasuredQuantity::kOutputTokensPerSecond;
  return row;
}

inline Measurement rl_row(const std::string& id) {
  Measurement row = train_row(id);
  row.kind = MeasurementKind::kRlStep;
  row.phase = "total";
  row.global_batch = row.seq_len = std::nullopt;
  row.prompt_len = 256;
  row.output_len = 1024;
  row.max_output_len = 4096;
  row.prompts = 64;
  row.samples_per_prompt = 8;
  row.gen_tp = 1;
  row.placement = "colocated";
  row.engine = "vllm";
  return row;
}

inline Measurement memory_row(const std::string& id) {
  Measurement row = train_row(id);
  row.metric = MeasuredQuantity::kNone;
  row.is_memory = true;
  row.memory_kind = "allocated";
  row.optimizer = "adamw, 32-bit master weights and states";
  row.offload = "none";
  return row;
}

// A file of the repository; empty where it is missing. Defined in predict_test.cc: only tests may
// read files.
std::string repository_text(const std::string& path);

}  // namespace braid
