// What a configuration of another framework costs, and the changes of its keys that gain most.
#pragma once

#include <cstdint>
#include <vector>

#include "advise/key_changes.h"
#include "foreign/foreign.h"
#include "search/simulate.h"

namespace braid::inline advise {

struct PricedImport {
  ImportedPlan imported;
  DetailedVerdict detailed;  // of the simulator
};

// By the simulator. Errors: keys that the framework refuses, a plan that cannot be priced.
Result<PricedImport> price_import(const Framework& framework, const ForeignKeys& keys,
                                  const ImportOptions& options, const Calibration& calibration);

struct ForeignChanges {
  std::vector<KeyChange> changes;  // by number of keys; each better than those with fewer
  int64_t priced = 0;              // configurations that were tried
};

// Of the changes that the evaluator finds best, those that the simulator finds better than `now`
// and than all with fewer keys. The number of devices stays.
Result<ForeignChanges> best_foreign_changes(const Framework& framework, const ForeignKeys& keys,
                                            const ImportOptions& options,
                                            const Calibration& calibration,
                                            const PricedImport& now);

}  // namespace braid::inline advise
