// What the parts of a session share: what it is given, where its samples and models are, and the
// record of the step that is run. References; the session owns what they name.
#pragma once

#include <map>
#include <string>

#include "algo/run_position.h"
#include "config/options.h"
#include "passes/call_work.h"
#include "passes/training.h"
#include "program/program.h"
#include "samples/call_rows.h"
#include "samples/fetch_samples.h"
#include "samples/field_exchange.h"
#include "samples/sample_ledger.h"
#include "samples/sample_store.h"
#include "session/rank_talk.h"
#include "weights/rank_models.h"

namespace braid::inline session {

// Of this rank's step.
struct StepRecord {
  Metrics metrics;
  std::map<std::string, double> seconds;   // of calls
  std::map<std::string, int64_t> repeats;  // of calls, for lack of memory
  SampleLedger ledger;
  AlgoState algo;        // what this rank has changed of the algorithm's state
  TrainedSoFar trained;  // since the session began
};

struct StepContext {
  const Config& config;
  const Program& program;
  FieldExchange& exchange;
  SampleStore& store;
  CallRows& rows;
  RankModels& models;
  const CallWork& work;
  RunPosition& position;
  StepRecord& record;
  RankTalk& talk;
  SampleReader& reader;

  int64_t rank() const { return exchange.rank(); }
  int64_t ranks() const { return exchange.ranks(); }
  const Call& call(CallId id) const { return program.graph.calls[id.value]; }
  CallId id_of(const Call& call) const {
    return CallId{static_cast<int32_t>(&call - program.graph.calls.data())};
  }
  bool takes_part(CallId call) const { return rows.dp_rank(call, rank()) >= 0; }
  // The first rank of the call says what all of its ranks do.
  bool leads(CallId call) const;
  bool all_take_part(CallId call) const;
};

// Why micro-batches become smaller.
inline constexpr const char* kDeclared = "what the next ones declare is not free";
inline constexpr const char* kElsewhere = "on another rank";

// Of a call whose micro-batches have one sample each; `why`: "" where it came from another rank.
Status too_little_memory(const std::string& why);

// Memory is not there for a mini-batch of a call on some rank, `why` where it is this one: smaller
// micro-batches from here on, and whether there are any. All ranks of the call come here. `rows`
// are those of the step, or of an evaluation.
bool cut_smaller(const StepContext& step, const Call& call, CallRows& rows, size_t minibatch,
                 const std::string& why, SamplePart part = SamplePart::kAll);

}  // namespace braid::inline session
