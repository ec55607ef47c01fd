// Small cases that can be priced by hand, for the tests of this module.
#pragma once

#include <string>

#include "pricing/memory.h"

namespace braid::inline pricing {

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

}  // namespace braid::inline pricing
