// The samples of a step that draws prompts until enough of their groups have a signal: those that
// earlier draws have left. Every rank keeps its own, with the account of who holds what; all of
// them find the same, since rewards and groups are everyone's. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "program/exchange.h"
#include "samples/sample_store.h"

namespace braid::inline samples {

// Marks the samples whose group has two rewards that differ: of a group whose rewards are all
// equal, no sample is better than another (Yu et al., DAPO, 2025, eq. 11).
std::vector<bool> with_signal(const std::vector<double>& rewards,
                              const std::vector<int64_t>& groups);
// Of samples whose groups stand together, marks those of the first `most` groups.
std::vector<bool> of_first_groups(const std::vector<int64_t>& groups, int64_t most);
int64_t count_groups(const std::vector<int64_t>& groups);

class DrawnGroups {
 public:
  // A new step: nothing is drawn.
  void begin();
  // Draws that were taken.
  int64_t draws() const { return draws_; }
  int64_t groups() const;
  // The samples that a draw has left, in the order of the data, and who holds what of them.
  void take(SampleStore left, FieldHoldings holdings);
  // Gives back the samples of the first `most` groups of all draws. REQUIRES: there was one.
  void give(int64_t most, SampleStore* store, FieldHoldings* holdings);

 private:
  struct Left {
    SampleStore store;
    FieldHoldings holdings;
  };
  std::optional<Left> left_;
  int64_t draws_ = 0;
};

}  // namespace braid::inline samples
