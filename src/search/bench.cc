#include "search/bench.h"

#include "optimize/units.h"
#include "plan/plan_text.h"

namespace braid::inline search {
namespace {

// One plan is one work unit, so that threads share them; verdicts know nothing of each other.
class JudgeUnits final : public optimize::UnitSource {
 public:
  JudgeUnits(const Judge& judge, const std::vector<ExecutionPlan>& plans)
      : judge_(judge), plans_(plans), verdicts_(plans.size()) {}

  bool start(int64_t unit) override { return unit < static_cast<int64_t>(plans_.size()); }
  void run(int64_t unit) override {
    const auto index = static_cast<size_t>(unit);
    verdicts_[index] = judge_(plans_[index]);
  }
  void finish(int64_t, double) override {}

  const std::vector<std::optional<Result<Verdict>>>& verdicts() const { return verdicts_; }

 private:
  const Judge& judge_;
  const std::vector<ExecutionPlan>& plans_;
  std::vector<std::optional<Result<Verdict>>> verdicts_;  // each written by the unit's thread alone
};

}  // namespace

Status PlanBench::price(const std::vector<ExecutionPlan>& plans) {
  std::vector<ExecutionPlan> fresh;
  for (const ExecutionPlan& plan : plans) {
    const auto next = static_cast<int>(judged_.size() + fresh.size());
    if (index_of_.emplace(plan_to_yaml(plan), next).second) fresh.push_back(plan);
  }
  JudgeUnits units(judge_, fresh);
  run_units(units, {.threads = threads_, .stop = {}, .elapsed_s = {}});
  for (size_t i = 0; i < fresh.size(); ++i) {
    BRAID_ASSIGN(Verdict verdict, *units.verdicts()[i]);
    judged_.push_back({std::move(fresh[i]), std::move(verdict)});
    consider(static_cast<int>(judged_.size()) - 1);
  }
  return ok_status();
}

const Verdict& PlanBench::verdict(const ExecutionPlan& plan) const {
  const auto found = index_of_.find(plan_to_yaml(plan));
  BRAID_CHECK(found != index_of_.end(), "a plan that has not been judged");
  return judged_[found->second].verdict;
}

bool PlanBench::accepts(const Verdict& verdict) const { return leaves(verdict, margin_); }

void PlanBench::consider(int index) {
  const Verdict& verdict = judged_[index].verdict;
  if (!accepts(verdict)) return;
  if (best_ < 0 || verdict.step_s < judged_[best_].verdict.step_s) best_ = index;
}

void PlanBench::set_margin(double margin) {
  margin_ = margin;
  best_ = -1;
  for (size_t i = 0; i < judged_.size(); ++i) consider(static_cast<int>(i));
}

const JudgedPlan* PlanBench::smallest() const {
  const JudgedPlan* least = nullptr;
  for (const JudgedPlan& one : judged_)
    if (least == nullptr || one.verdict.peak_bytes * least->verdict.capacity_bytes <
                                least->verdict.peak_bytes * one.verdict.capacity_bytes)
      least = &one;
  return least;
}

}  // namespace braid::inline search
