#include "advise/foreign_changes.h"

#include <memory>
#include <optional>
#include <utility>

#include "search/judge.h"

namespace braid::inline advise {
namespace {

struct Estimated {
  int devices = 0;
  Verdict verdict;
};

// By the evaluator, for the search over keys. What configurations of equal problems have in common,
// such as drawn lengths and rounds of generation, is kept from one to the next.
class KeyPricer {
 public:
  KeyPricer(const Framework& framework, const ImportOptions& options,
            const Calibration& calibration)
      : framework_(framework), options_(options), calibration_(calibration) {}

  Result<Estimated> price(const ForeignKeys& keys) {
    BRAID_ASSIGN(const ImportedPlan imported, framework_.import_keys(keys, options_));
    BRAID_ASSIGN(const Kept* kept, kept_for(imported.problem));
    BRAID_ASSIGN(Verdict verdict, evaluator_judge(kept->problem, *kept->pricer)(imported.plan));
    return Estimated{imported.plan.devices, std::move(verdict)};
  }

 private:
  struct Kept {
    PlanningProblem problem;  // that the pricer points to
    std::optional<CallPricer> pricer;
  };

  // Few: keys change strategies more often than problems.
  Result<const Kept*> kept_for(const PlanningProblem& problem) {
    for (const auto& kept : kept_)
      if (kept->problem == problem) return kept.get();
    auto kept = std::make_unique<Kept>(Kept{problem, std::nullopt});
    BRAID_ASSIGN(kept->pricer, CallPricer::make(kept->problem, calibration_));
    kept_.push_back(std::move(kept));
    return kept_.back().get();
  }

  const Framework& framework_;
  const ImportOptions& options_;
  const Calibration& calibration_;
  std::vector<std::unique_ptr<Kept>> kept_;
};

Result<std::vector<KeyChange>> confirmed(const Framework& framework, const ForeignKeys& keys,
                                         const ImportOptions& options,
                                         const Calibration& calibration, const Verdict& now,
                                         const BestChanges& changes) {
  std::vector<KeyChange> out;
  for (KeyChange change : changes.by_count) {
    ForeignKeys changed = keys;
    for (const auto& [key, value] : change.changed) changed[key] = value;
    BRAID_ASSIGN(const ImportedPlan imported, framework.import_keys(changed, options));
    BRAID_ASSIGN(change.verdict, simulate_plan(imported.plan, imported.problem, calibration, {}));
    if (better(change.verdict, out.empty() ? now : out.back().verdict))
      out.push_back(std::move(change));
  }
  return out;
}

}  // namespace

Result<PricedImport> price_import(const Framework& framework, const ForeignKeys& keys,
                                  const ImportOptions& options, const Calibration& calibration) {
  PricedImport out;
  BRAID_ASSIGN(out.imported, framework.import_keys(keys, options));
  BRAID_ASSIGN(out.detailed,
               simulate_plan_in_detail(out.imported.plan, out.imported.problem, calibration));
  return out;
}

Result<ForeignChanges> best_foreign_changes(const Framework& framework, const ForeignKeys& keys,
                                            const ImportOptions& options,
                                            const Calibration& calibration,
                                            const PricedImport& now) {
  KeyPricer pricer(framework, options, calibration);
  BRAID_ASSIGN(const Estimated estimated, pricer.price(keys));
  const PriceKeys price = [&](const ForeignKeys& changed) -> Result<Verdict> {
    BRAID_ASSIGN(const Estimated then, pricer.price(changed));
    if (then.devices != now.imported.plan.devices)
      return invalid_input("another number of devices");
    return then.verdict;
  };
  const BestChanges found = best_changes(keys, estimated.verdict, framework.tunable(keys), price);
  ForeignChanges out;
  out.priced = found.priced;
  BRAID_ASSIGN(out.changes,
               confirmed(framework, keys, options, calibration, now.detailed.verdict, found));
  return out;
}

}  // namespace braid::inline advise
