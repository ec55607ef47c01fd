#include "algo/batch.h"
#include "algo/functions.h"

namespace braid::inline algo {

Result<ComputeResult> sampler_logprobs(const AlgoBatch& batch, const AlgorithmOptions&,
                                       AlgoState&) {
  ComputeResult result;
  BRAID_ASSIGN(result.fields["old_logprobs"], token_field(batch, "sampler_logprobs"));
  return result;
}

}  // namespace braid::inline algo
