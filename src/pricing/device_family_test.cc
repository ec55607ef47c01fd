// Devices of one architecture against each other.
#include "pricing/device_family.h"

#include <gtest/gtest.h>

#include "pricing/compute.h"

namespace braid::inline pricing {
namespace {

Efficiency reached(const GpuSpec& gpu) {
  return family_efficiency(committed_calibration(), gpu, Precision::kBf16, "");
}

TEST(DeviceFamily, ADeviceThatWasNotMeasuredTakesTheOffsetsOfTheNearest) {
  const Efficiency h800 = reached(*find_gpu("h800")), h100 = reached(*find_gpu("h100-80g"));
  for (const Knob& knob : knobs())
    EXPECT_DOUBLE_EQ(h800.*knob.member, h100.*knob.member) << knob.name;
}

TEST(DeviceFamily, AMeasuredDeviceKeepsWhatItReaches) {
  const GpuSpec gpu = *find_gpu("h100-80g");
  const Efficiency alone =
      resolve_efficiency(committed_calibration(), efficiency_key(gpu, Precision::kBf16, ""));
  EXPECT_EQ(reached(gpu).matmul_share, alone.matmul_share);
  EXPECT_EQ(reached(gpu).decode_weight_share, alone.decode_weight_share);
}

// Layers forward and backward and decode steps of every pair of devices of one architecture, of
// which one is better in no number.
TEST(DeviceFamily, ADeviceThatIsNoBetterInAnyNumberIsNeverFaster) {
  const ModelSize model = *find_model("llama2-7b");
  int pairs = 0;
  for (const GpuSpec& less : gpu_catalogue())
    for (const GpuSpec& more : gpu_catalogue()) {
      if (less.key == more.key || less.architecture != more.architecture) continue;
      const bool no_better =
          less.bf16_tflops <= more.bf16_tflops && less.fp8_tflops <= more.fp8_tflops &&
          less.fp4_tflops <= more.fp4_tflops && less.hbm_bytes <= more.hbm_bytes &&
          less.hbm_gbytes_per_s <= more.hbm_gbytes_per_s &&
          less.nvlink_gbytes_per_s <= more.nvlink_gbytes_per_s &&
          less.pcie_gbytes_per_s <= more.pcie_gbytes_per_s &&
          less.sustained_share <= more.sustained_share;
      if (!no_better) continue;
      ++pairs;
      const auto a = make_device(less, Precision::kBf16, "", committed_calibration());
      const auto b = make_device(more, Precision::kBf16, "", committed_calibration());
      ASSERT_TRUE(a.ok() && b.ok());
      LayerPass pass;
      pass.tokens = 4096, pass.context = 1024;
      EXPECT_GE(layer_forward_s(model, pass, *a), layer_forward_s(model, pass, *b) * (1 - 1e-9))
          << less.key << " " << more.key;
      EXPECT_GE(layer_backward_s(model, pass, *a), layer_backward_s(model, pass, *b) * (1 - 1e-9))
          << less.key << " " << more.key;
      DecodeStep step;
      for (const double sequences : {1.0, 32.0, 256.0}) {
        step.sequences = sequences, step.context = 1024;
        EXPECT_GE(decode_step_s(model, step, *a), decode_step_s(model, step, *b) * (1 - 1e-9))
            << less.key << " " << more.key << " " << sequences;
      }
    }
  EXPECT_GE(pairs, 8);
}

}  // namespace
}  // namespace braid::inline pricing
