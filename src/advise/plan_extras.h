// What a person asks about a found plan beside the plan itself: how the given configuration and
// other systems compare, why it is as it is, what it could gain that no search chose, and what it
// is in another framework's keys. Values; one thread.
#pragma once

#include <optional>
#include <vector>

#include "advise/explain.h"
#include "advise/planning.h"
#include "advise/report.h"
#include "foreign/foreign.h"
#include "search/ahead.h"
#include "search/beyond_train.h"
#include "search/early_update.h"
#include "search/fuse.h"
#include "search/migration.h"
#include "search/predicted.h"

namespace braid::inline advise {

// The given configuration against the best.
struct GivenPlan {
  Verdict verdict;
  bool nothing_to_gain = false;
};

// What was asked for beyond the plan itself.
struct PlanExtras {
  std::optional<GivenPlan> given;
  std::vector<CompareRow> rows;
  std::vector<CallExplanation> explanations;
  Result<std::optional<BeyondProposal>> beyond = std::optional<BeyondProposal>();
  std::optional<FusionProposal> fusion;
  std::optional<AheadProposal> ahead;
  std::optional<Result<MigrationProposal>> migration;
  std::optional<Result<PredictedGain>> predicted;
  std::optional<Result<EarlyUpdateGain>> early_update;
  std::optional<Planning> what_if;  // of a changed configuration; the caller reads and plans it
  std::optional<ExportedText> exported;
};

// All that the request asks for, but for `what_if`. Errors: those of the searches, an unknown
// framework.
Status add_extras(const PlanRequest& request, const Planning& planning, PlanExtras& extras);

}  // namespace braid::inline advise
