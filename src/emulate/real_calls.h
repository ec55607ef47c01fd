// The calls of c10d that an emulated rank makes in a step, beside what they are priced: how much
// longer than a real step an emulated one has to take for the former to be hidden in the latter.
// Plain value.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/communicator.h"

namespace braid::inline emulate {

class RealCalls {
 public:
  // One call for each of these groups, which one price is for.
  void note(double priced_s, std::vector<const Communicator*> groups) {
    if (!groups.empty()) together_.push_back({priced_s, std::move(groups)});
  }
  // A message; those of one lane follow each other.
  using Lane = std::tuple<int, int64_t, int64_t>;
  void note_message(const Lane& lane, double priced_s) { messages_[lane].push_back(priced_s); }

  int64_t count() const;
  // Seconds of this machine that a call takes: by group, and of a message.
  struct Seconds {
    std::map<const Communicator*, double> collective;
    double message = 0;
  };
  // Least seconds of this machine for a second of the model with which the calls take at most
  // `allowed_s` of the model beyond their prices: those of groups, and of the busiest lane.
  double least_stretch(const Seconds& real, double allowed_s) const;

 private:
  struct Priced {
    double seconds = 0;
    std::vector<const Communicator*> groups;
  };
  double beyond_s(const Seconds& real, double stretch) const;

  std::vector<Priced> together_;
  std::map<Lane, std::vector<double>> messages_;
};

}  // namespace braid::inline emulate
