// Steps from which a trained role learns nothing, as their metrics show: no sample or token is
// left, no update was applied, or every gradient was 0. One process of a job watches. Not
// thread-safe; no files.
#pragma once

#include <map>
#include <string>

#include "config/options.h"
#include "dataflow/graph.h"

namespace braid::inline run {

class IdleWatch {
 public:
  // REQUIRES: both outlive this.
  IdleWatch(const Config& config, const Graph& graph) : config_(config), graph_(graph) {}

  // Takes the metrics of step `step` (from 0), which is complete. Returns what to warn of: the
  // first idle step, and runs of them as they grow; "" for nothing.
  std::string note(int64_t step, const std::map<std::string, double>& row);

  // kStopped once as many steps in a row as train.max_idle_steps says were idle.
  Status status() const;

 private:
  // Why a call's role learnt nothing; "" where it did, or where that was said already.
  std::string reason(const Call& call, int64_t step,
                     const std::map<std::string, double>& row) const;

  const Config& config_;
  const Graph& graph_;
  int64_t in_a_row_ = 0;
  bool warned_ = false;
  std::string last_;  // role and reason
};

}  // namespace braid::inline run
