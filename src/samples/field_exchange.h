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
// emulated devices. Contiguous, in pieces of 4 bytes: i32 tensors here.
class FieldContents {
 public:
  virtual ~FieldContents() = default;
  // On the rank that sends.
  virtual at::Tensor packed(const Field& field, const Rows& rows) = 0;
  // On the rank that receives: how many pieces come of so many numbers, and what becomes of them.
  virtual int64_t pieces(int64_t numbers) const = 0;
  virtual Status put(const Field& field, const Rows& rows, const at::Tensor& arrived) = 0;
  // A field with one f32 number for each sample, that all ranks say to each other.
  virtual at::Tensor said(const Field& field, const Rows& rows) = 0;
  virtual Status hear(const Field& field, const Rows& rows, const at::Tensor& all) = 0;
};

// The numbers themselves, from and into a store.
class StoredFields : public FieldContents {
 public:
  explicit StoredFields(SampleStore& store) : store_(store) {}
  at::Tensor packed(const Field& field, const Rows& rows) override;
  int64_t pieces(int64_t numbers) const override { return numbers; }
  Status put(const Field& field, const Rows& rows, const at::Tensor& arrived) override;
  at::Tensor said(const Field& field, const Rows& rows) override { return packed(field, rows); }
  Status hear(const Field& field, const Rows& rows, const at::Tensor& all) override {
    return put(field, rows, all);
  }

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
  // Fields of the store, with the numbers that each row has of them; those alone that somebody has
  // written.
  std::vector<MovedField> known(const std::vector<Field>& fields) const;
  // All ranks have all rows of a field.
  void note_everywhere(const std::string& field);

  // The moves among the members that give each rank, [rank], the rows of the fields that it needs
  // and lacks: they count as made.
  std::vector<FieldMove> moves(const std::vector<Field>& fields,
                               const std::vector<SampleRows>& needed,
                               const std::vector<DeviceId>& members);
  // Begins those of an exchange that this rank takes part in: a message for all fields. They run
  // beside what it computes.
  void start(int32_t exchange, const std::vector<Field>& fields,
             const std::vector<FieldMove>& moves);
  // Waits until what comes to this rank in an exchange is in the store.
  Status arrive(int32_t exchange);
  // What comes to this rank in an exchange that has started, for who waits for it otherwise.
  struct Part {
    Field field;
    Rows rows;
    at::Tensor values;  // of the message
  };
  struct Arrival {
    int32_t exchange = -1;
    std::vector<Part> parts;
    Pending pending;
  };
  std::list<Arrival> take_arrivals(int32_t exchange);
  // Waits for all that this rank sends, and for what nobody waited for.
  Status end_step();
  // Leaves what is on its way: after a failure.
  void abandon();

  // All rows of fields with one number for each sample to all ranks, at once: counts, which later
  // payloads and the partitioning of samples are computed from, and flags. One all-gather, to which
  // each rank gives an even part of the rows that it has. Every rank must call it.
  Status share(const std::vector<Field>& fields);
  // Bytes of that all-gather; 0: none takes place.
  int64_t shared_bytes(const std::vector<Field>& fields) const;
  // The rows of fields that the first rank lacks to that rank. Every rank must call it, and
  // end_step() after it.
  Status bring_to_first(const std::vector<Field>& fields);
  // The text of every rank, on every rank.
  Result<std::vector<std::string>> gather_text(const std::string& mine, const std::string& what);

 private:
  // Of these the fields that somebody has written.
  std::vector<Field> written(const std::vector<Field>& fields) const;
  void send(const std::vector<Field>& fields, const FieldMove& move);
  void receive(int32_t exchange, const std::vector<Field>& fields, const FieldMove& move);
  // The rows of which each rank says what it has in a share, [rank].
  std::vector<Rows> spoken(const std::vector<Field>& fields) const;
  at::Tensor own_words(const std::vector<Field>& fields, const Rows& rows, int64_t room);
  Status hear(const Field& field, const std::vector<Rows>& spoken, const at::Tensor& words_RS);

  Communicator* everyone_;
  SampleStore& store_;
  StoredFields stored_;
  FieldContents& contents_;
  FieldHoldings holdings_;
  std::list<Arrival> arriving_;  // in the order in which they began
  std::list<std::pair<at::Tensor, Pending>> sending_;
};

}  // namespace braid::inline samples
