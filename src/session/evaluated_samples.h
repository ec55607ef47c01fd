// The responses of an evaluation as samples of a step: all ranks know which there are and how long
// they are, and a rank gets the tokens of those alone that it works on. All ranks of a job call the
// same in the same order. Not thread-safe.
#pragma once

#include <map>
#include <vector>

#include "rollout/engine.h"
#include "samples/field_exchange.h"
#include "samples/sample_store.h"

namespace braid::inline session {

class EvaluatedSamples {
 public:
  // So many responses, `copies` to each prompt, of which each rank, [rank], has drawn those in
  // `drawn`. What calls of the graph write of them has a place. `everyone`: null for one rank.
  EvaluatedSamples(const Graph& graph, Communicator* everyone, int64_t responses, int64_t copies,
                   std::vector<SampleRows> drawn);
  EvaluatedSamples(const EvaluatedSamples&) = delete;
  EvaluatedSamples& operator=(const EvaluatedSamples&) = delete;

  // What this rank has drawn; afterwards lengths are known.
  Status share(const std::vector<Generated>& mine);
  // The tokens of the responses that each rank needs, [rank], to that rank.
  Status bring(const std::vector<SampleRows>& needed);
  // A number that a call has found of each response: of the rows that each rank says, [rank], those
  // of this one.
  Status put(const Field& field, const std::vector<SampleRows>& said,
             const std::map<size_t, double>& mine);
  // All of it to the first rank.
  Status bring_to_first();

  SampleStore& store() { return store_; }
  // Of rows that are here.
  Result<std::vector<Generated>> responses(const Rows& rows) const;

 private:
  SampleStore store_;
  FieldExchange exchange_;
  const std::vector<SampleRows> drawn_;
  std::vector<Field> found_;  // by calls
};

}  // namespace braid::inline session
