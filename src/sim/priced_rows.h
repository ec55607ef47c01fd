// Which rows of a step each rank has to do with in a call, of samples that are drawn: what prices
// of a step say of it (sim/step_prices.h), to those who ask of samples that are there. Every step
// is alike.
#pragma once

#include "program/rows_by_rank.h"
#include "sim/step_prices.h"

namespace braid::inline sim {

class PricedRows : public RowsByRank {
 public:
  // REQUIRES: it outlives this.
  explicit PricedRows(const StepPrices& prices) : prices_(prices) {}

  size_t samples() const override { return prices_.lengths().prompt.size(); }
  std::vector<SampleRows> written_by_rank(CallId call, int64_t, SamplePart part) override {
    return prices_.written_rows(call, part);
  }
  std::vector<SampleRows> read_by_rank(CallId call, int64_t, SamplePart part) override {
    return prices_.read_rows(call, part);
  }
  std::vector<SampleRows> told_by_rank(CallId call, int64_t) override {
    return prices_.told_rows(call);
  }

 private:
  const StepPrices& prices_;
};

}  // namespace braid::inline sim
