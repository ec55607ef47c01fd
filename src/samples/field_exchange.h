// Brings values of a step's fields to the ranks that need them: each once, and only there. Every
// rank keeps the same account of who holds what (program/exchange.h), because all of them walk the
// same table of exchanges with the same samples; nothing is negotiated. Not thread-safe.
#pragma once

#include <list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "program/exchange.h"
#include "samples/sample_store.h"

namespace braid::inline samples {

// Of the messages that bring fields, in the group of all ranks.
inline constexpr int32_t kFieldChannel = 0;

// What travels of rows of a field that have numbers: the numbers, or what stands for them on
// emulated devices.
class FieldContents {
 public:
  virtual ~FieldContents() = default;
  // On the rank that sends; the tensor stays as it is until it has arrived.
  virtual at::Tensor packed(const Field& field, const Rows& rows) = 0;
  // On the rank that receives: where so many numbers arrive, and what becomes of them.
  virtual at::Tensor room(const Field& field, int64_t numbers) = 0;
  virtual Status put(const Field& field, const Rows& rows, const at::Tensor& arrived) = 0;
};

// The numbers themselves, from and into a store.
class StoredFields : public FieldContents {
 public:
  explicit StoredFields(SampleStore& store) : store_(store) {}
  at::Tensor packed(const Field& field, const Rows& rows) override;
  at::Tensor room(const Field& field, int64_t numbers) override;
  Status put(const Field& field, const Rows& rows, const at::Tensor& arrived) override;

 private:
  SampleStore& store_;
};

class FieldExchange {
 public:
  // `everyone` is the group of all ranks of the job, or null for a job of one rank; `contents`:
  // null for those of the store, which has the counts of all rows in any case. REQUIRES: all
  // outlive this.
  FieldExchange(Communicator* everyone, SampleStore& store, FieldContents* contents = nullptr);
  FieldExchange(const FieldExchange&) = delete;
  FieldExchange& operator=(const FieldExchange&) = delete;

  Communicator* everyone() const { return everyone_; }
  int64_t ranks() const { return everyone_ == nullptr ? 1 : everyone_->size(); }
  int64_t rank() const { return everyone_ == nullptr ? 0 : everyone_->index(); }

  // A new step: nobody holds anything.
  void begin();
  // The account, which other ranks' exchanges change too.
  FieldHoldings& holdings() { return holdings_; }
  // Numbers that each row has of a field.
  std::vector<int64_t> value_counts(const Field& field) const;
  // All ranks have all rows of a field.
  void note_everywhere(const std::string& field);

  // The moves among the members that give each rank, [rank], the rows of the field that it needs
  // and lacks: they count as made.
  std::vector<FieldMove> moves(const Field& field, const std::vector<SampleRows>& needed,
                               const std::vector<DeviceId>& members);
  // Begins those of an exchange that this rank takes part in. They run beside what it computes.
  void start(int32_t exchange, const Field& field, const std::vector<FieldMove>& moves);
  // Waits until what comes to this rank in an exchange is in the store.
  Status arrive(int32_t exchange);
  // What comes to this rank in an exchange that has started, for who waits for it otherwise.
  struct Arrival {
    int32_t exchange = -1;
    Field field;
    Rows rows;
    at::Tensor values;
    Pending pending;
  };
  std::list<Arrival> take_arrivals(int32_t exchange);
  // Waits for all that this rank sends, and for what nobody waited for.
  Status end_step();
  // Leaves what is on its way: after a failure.
  void abandon();

  // All rows of a field to all ranks, at once. Every rank must call it.
  Status share(const Field& field);
  // The same of counts: what later payloads and the partitioning of samples are computed from.
  Status share_counts(const Field& field);
  // The rows of a field that the first rank lacks to that rank. Every rank must call it, and
  // end_step() after it.
  Status bring_to_first(const Field& field);
  // The text of every rank, on every rank.
  Result<std::vector<std::string>> gather_text(const std::string& mine, const std::string& what);

 private:
  Communicator* everyone_;
  SampleStore& store_;
  StoredFields stored_;
  FieldContents& contents_;
  FieldHoldings holdings_;
  std::list<Arrival> arriving_;  // in the order in which they began
  std::list<std::pair<at::Tensor, Pending>> sending_;
};

}  // namespace braid::inline samples
