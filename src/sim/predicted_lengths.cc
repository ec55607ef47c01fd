#include "sim/predicted_lengths.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/rng.h"

namespace braid::inline sim {
namespace {

constexpr uint64_t kPredictionStream = 0x6c656e67746873;  // apart from those of the lengths

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double deviation_of(const std::vector<double>& values) {
  const double mean = mean_of(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size()));
}

}  // namespace

// Of a prompt's mean m: mean + r^2 (m - mean) + r sqrt(1 - r^2) deviation * normal. Its correlation
// with m is r, and the expected m, given it, is itself.
std::vector<int64_t> predicted_lengths(const SampleLengths& lengths, int64_t copies,
                                       double correlation, uint64_t seed) {
  copies = std::max<int64_t>(1, copies);
  std::vector<double> means(lengths.response.size() / copies);
  for (size_t prompt = 0; prompt < means.size(); ++prompt)
    for (int64_t i = 0; i < copies; ++i)
      means[prompt] +=
          static_cast<double>(lengths.response[prompt * copies + i]) / static_cast<double>(copies);
  if (means.empty()) return {};
  const double all = mean_of(means), deviation = deviation_of(means);
  const double noise = correlation * std::sqrt(1 - correlation * correlation) * deviation;
  std::vector<int64_t> out;
  for (size_t prompt = 0; prompt < means.size(); ++prompt) {
    RandomStream random(mix_seed(seed, kPredictionStream), prompt);
    const double known = correlation * correlation * (means[prompt] - all);
    const double predicted = all + known + noise * random.normal();
    out.insert(out.end(), copies, std::max<int64_t>(1, std::llround(predicted)));
  }
  return out;
}

}  // namespace braid::inline sim
