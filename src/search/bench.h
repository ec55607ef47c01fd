// Plans that a judge has priced, each once, and the best of those that fit. Plans are judged by
// several threads; the order in which they are asked for decides between equals. One thread uses a
// bench at a time.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "search/search.h"

namespace braid::inline search {

class PlanBench {
 public:
  // A plan is acceptable if it fits and leaves `margin` of every device's memory free.
  PlanBench(const Judge& judge, int threads, double margin)
      : judge_(judge), threads_(threads), margin_(margin) {}

  // Prices those that are new. Errors: the judge's.
  Status price(const std::vector<ExecutionPlan>& plans);
  // The verdict of a plan that has been priced.
  const Verdict& verdict(const ExecutionPlan& plan) const;

  bool accepts(const Verdict& verdict) const;
  void set_margin(double margin);

  // The fastest acceptable one; null: none.
  const JudgedPlan* best() const { return best_ < 0 ? nullptr : &judged_[best_]; }
  // The one that lacks the least memory; null: nothing has been priced.
  const JudgedPlan* smallest() const;
  const std::vector<JudgedPlan>& judged() const { return judged_; }

 private:
  void consider(int index);

  const Judge& judge_;
  int threads_;
  double margin_;
  std::vector<JudgedPlan> judged_;       // in the order of asking
  std::map<std::string, int> index_of_;  // by the plan's text
  int best_ = -1;
};

}  // namespace braid::inline search
