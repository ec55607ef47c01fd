#include "pricing/device_family.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "base/text.h"
#include "pricing/own_engine.h"

namespace braid::inline pricing {
namespace {

// Whether less of a knob is faster: times; the others are shares of a rate.
bool is_time(const Knob& knob) {
  const std::string name = knob.name;
  return name.size() > 3 && name.compare(name.size() - 3, 3, "_us") == 0;
}

// What a share is a share of.
double rate_of(const Knob& knob, const GpuSpec& gpu) {
  const bool memory = knob.member == &Efficiency::decode_weight_share ||
                      knob.member == &Efficiency::decode_kv_share;
  return memory ? gpu.hbm_gbytes_per_s : gpu.sustained_tflops();
}

// ln of the factor that a device was fitted to have; absent: not measured.
std::optional<double> fitted(const Calibration& calibration, const Knob& knob, const GpuSpec& gpu) {
  const auto found = calibration.offsets.find(cat(knob.name, "@gpu:", gpu.key));
  return found == calibration.offsets.end() ? std::nullopt : std::optional(found->second);
}

// Measured devices of an architecture with their offsets.
std::vector<std::pair<const GpuSpec*, double>> measured_family(const Calibration& calibration,
                                                               const Knob& knob,
                                                               const std::string& architecture) {
  std::vector<std::pair<const GpuSpec*, double>> out;
  for (const GpuSpec& gpu : gpu_catalogue())
    if (gpu.architecture == architecture)
      if (const auto offset = fitted(calibration, knob, gpu)) out.emplace_back(&gpu, *offset);
  return out;
}

constexpr double GpuSpec::*kNumbers[] = {&GpuSpec::bf16_tflops,       &GpuSpec::fp8_tflops,
                                         &GpuSpec::fp4_tflops,        &GpuSpec::hbm_bytes,
                                         &GpuSpec::hbm_gbytes_per_s,  &GpuSpec::nvlink_gbytes_per_s,
                                         &GpuSpec::pcie_gbytes_per_s, &GpuSpec::sustained_share};

bool no_better(const GpuSpec& a, const GpuSpec& b) {
  return std::all_of(std::begin(kNumbers), std::end(kNumbers),
                     [&](double GpuSpec::*number) { return a.*number <= b.*number; });
}

// In peaks and memory rate, as a sum of logarithms.
double distance(const GpuSpec& a, const GpuSpec& b) {
  double sum = 0;
  for (double GpuSpec::*number : {&GpuSpec::bf16_tflops, &GpuSpec::hbm_gbytes_per_s,
                                  &GpuSpec::sustained_share, &GpuSpec::hbm_bytes})
    sum += std::abs(std::log(a.*number / b.*number));
  return sum;
}

}  // namespace

Efficiency family_efficiency(const Calibration& calibration, const GpuSpec& gpu,
                             Precision precision, const std::string& engine) {
  Efficiency out = resolve_efficiency(calibration, efficiency_key(gpu, precision, engine));
  for (const Knob& knob : knobs()) {
    if (knob.by_gpu == 0) continue;
    const auto family = measured_family(calibration, knob, gpu.architecture);
    if (family.empty()) continue;
    double& value = out.*knob.member;
    const std::optional<double> own = fitted(calibration, knob, gpu);
    const double without = value / std::exp(own.value_or(0));
    if (!own) {
      const auto nearest =
          std::min_element(family.begin(), family.end(), [&](const auto& a, const auto& b) {
            return distance(gpu, *a.first) < distance(gpu, *b.first);
          });
      value = without * std::exp(nearest->second);
    }
    for (const auto& [other, offset] : family) {
      if (other->key == gpu.key || !no_better(*other, gpu)) continue;
      const double theirs = without * std::exp(offset);
      value = is_time(knob) ? std::min(value, theirs)
                            : std::max(value, theirs * rate_of(knob, *other) / rate_of(knob, gpu));
    }
  }
  take_own_engine(calibration, gpu, engine, &out);
  return out;
}

}  // namespace braid::inline pricing
