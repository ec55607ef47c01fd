// The trace of RLHFuse's inter-stage fusion (Zhong et al., arXiv 2409.13221, section 4) by the
// plan simulator: a batch with a tail of long responses on equal replicas whose decoding takes no
// longer until a batch is saturated, and scoring that takes a given share of the generation.
#pragma once

#include "search/migration.h"

namespace braid::reproduce {

struct TailTrace {
  int replicas = 16;        // of one device
  int64_t samples = 512;    // of a step
  int64_t saturation = 48;  // sequences of a replica from which decoding takes longer
  int64_t median = 200;     // tokens of a response
  double sigma = 0.745;     // of the logarithm of its length
  int64_t longest = 2000;   // responses are cut here
  double scoring = 0.25;    // of the generation's time, where one follows the other
  int score_tp = 1;         // tensor parallelism of scoring
};

struct TailTimes {
  double generate_s = 0, score_s = 0;  // one after the other
  double fused_s = 0;                  // until the last sample is scored, handed over
  double generate_fused_s = 0;         // of that, until the last is generated
  // What neither can beat: the longest response alone on a replica, and all work balanced,
  // decoding in saturated batches.
  double longest_s = 0, work_s = 0;
  double begun_s = 0;  // as fused_s, where beginnings of what is left are scored ahead
  Fusion chosen, begun;
  double bound_s() const { return longest_s > work_s ? longest_s : work_s; }
};
// With the numbers that `auto` stands for.
Result<TailTimes> run_tail(const TailTrace& trace);

}  // namespace braid::reproduce
