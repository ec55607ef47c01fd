// The fields of an emulated step. Which rows go from whom to whom, when a message begins and who
// waits for it is the runtime's (samples/field_account.h, samples/field_exchange.h), over samples
// of drawn lengths; counts are shared as they are, and of other fields stand-ins travel. Not
// thread-safe.
#pragma once

#include <functional>
#include <list>
#include <string>
#include <vector>

#include "emulate/stand_in.h"
#include "program/listed_messages.h"
#include "samples/field_account.h"
#include "samples/field_exchange.h"
#include "sim/priced_rows.h"

namespace braid::inline emulate {

class EmulatedFields : private FieldContents {
 public:
  using Misplaced = std::function<void(const std::string&)>;
  // Of the calls that work so many steps ahead. `misplaced` is told, from any thread, where ranks
  // mean different things. REQUIRES: all outlive this.
  EmulatedFields(const Program& program, const StepPrices& prices, Communicator& everyone,
                 int64_t steps_ahead, Misplaced misplaced);

  // How many messages and collectives of this rank each exchange and share consists of, [entry].
  // REQUIRES: none has begun.
  std::vector<int64_t> transfers();

  // Begins an exchange that this rank has come to at that time; what comes to it.
  using Arrivals = std::list<FieldExchange::Arrival>;
  Result<Arrivals> begin_exchange(int32_t entry, int64_t ready_ns);
  // Waits for that.
  Status await(Arrivals arrivals) const;
  // A share, by all ranks.
  Status share(int32_t entry, int64_t ready_ns);
  // Waits for what this rank has sent.
  Status end_step() { return exchange_.end_step(); }

 private:
  void begin();
  bool sends_values(const Exchange& shared) const;
  TransferCounts listed_of(const Call& fetch) const;
  Status tell_fetched(const Call& fetch);
  int64_t identity(int32_t entry, const Field& field, const Rows& rows) const;
  void compare(int32_t entry, const Field& field, const Rows& rows,
               const at::Tensor& arrived) const;
  Status share_values(const Exchange& shared);

  at::Tensor packed(const Field& field, const Rows& rows) override;
  int64_t pieces(int64_t) const override { return kStandInBytes / kNumberBytes; }
  Status put(const Field& field, const Rows& rows, const at::Tensor& arrived) override;
  at::Tensor said(const Field& field, const Rows& rows) override;
  Status hear(const Field&, const Rows&, const at::Tensor&) override { return ok_status(); }

  const Program& program_;
  const StepPrices& prices_;
  const int64_t steps_ahead_;
  const Misplaced misplaced_;
  PricedRows rows_;
  SampleStore store_;  // counts alone
  FieldExchange exchange_;
  FieldAccount account_;
  int32_t entry_ = -1;  // that is begun, and since when this rank is ready
  int64_t ready_ns_ = 0;
};

}  // namespace braid::inline emulate
