// Rows of measurements that can be priced by hand, for the tests of this module.
#pragma once

#include <optional>
#include <string>

#include "calibrate/measurement.h"
#include "calibrate/predict.h"
#include "pricing/test_cases.h"

namespace braid::inline calibrate {

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

}  // namespace braid::inline calibrate
