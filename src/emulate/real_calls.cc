#include "emulate/real_calls.h"

#include <algorithm>

namespace braid::inline emulate {

int64_t RealCalls::count() const {
  size_t out = 0;
  for (const Priced& calls : together_) out += calls.groups.size();
  for (const auto& [lane, prices] : messages_) out += prices.size();
  return static_cast<int64_t>(out);
}

double RealCalls::beyond_s(const Seconds& real, double stretch) const {
  double out = 0, busiest = 0;
  for (const Priced& calls : together_) {
    double sum = 0;
    for (const Communicator* group : calls.groups) sum += real.collective.at(group);
    out += std::max(0.0, sum - calls.seconds * stretch);
  }
  for (const auto& [key, prices] : messages_) {
    double lane = 0;
    for (const double price : prices) lane += std::max(0.0, real.message - price * stretch);
    busiest = std::max(busiest, lane);
  }
  return out + busiest;
}

double RealCalls::least_stretch(const Seconds& real, double allowed_s) const {
  const auto fits = [&](double stretch) { return beyond_s(real, stretch) <= allowed_s * stretch; };
  double low = 0, high = beyond_s(real, 0) / allowed_s;
  for (int i = 0; i < 40 && high > 0; ++i) {
    const double middle = (low + high) / 2;
    (fits(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace braid::inline emulate
