// Brings values of a step's fields to the ranks that need them: each once, and only there. Every
// rank keeps the same account of who holds what (program/exchange.h), because all of them walk the
// same table of exchanges with the same samples; nothing is negotiated. Not thread-safe.
#pragma once

#include <list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "comm/channels.h"
#include "comm/communicator.h"
#include "comm/transfer_count.h"
#include "program/exchange.h"
#include "samples/sample_store.h"

namespace braid::inline samples {

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

// Where the piece of each rank is in what all ranks bring together, and by what: in rooms of the
// longest piece by an all-gather, or, where that is more than twice as much, one behind the other
// by a sum, which in a ring passes each number twice.
struct GatheredPieces {
  explicit GatheredPieces(std::vector<int64_t> numbers);
  std::vector<int64_t> sizes, begins;  // by rank
  int64_t longest = 0, all = 0;        // `all`: of what is brought together; 0: nothing is
  bool sums = false;
};

// What a rank says of itself in a share, beside fields: none, or as many numbers as each other one.
struct SaidBeside {
  std::vector<int32_t> words;
  bool has_values = true;  // false: it has failed, and has nothing to say of its rows
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
  // payloads and the partitioning of samples are computed from, flags, and rewards. One collective
  // (GatheredPieces), to which each rank gives an even part of the rows that it has. What each rank
  // says beside, [rank]. Every rank must call it.
  Result<std::vector<std::vector<int32_t>>> share(const std::vector<Field>& fields,
                                                  const SaidBeside& beside = {});
  // That collective; none takes place where nobody has anything to say.
  TransferCounts listed_share(const std::vector<Field>& fields, int64_t beside) const;
  // The rows of which each rank says what it has of a field, [rank]. REQUIRES: the account knows
  // it.
  std::vector<Rows> said_by_rank(const std::string& field) const;
  // An f32 number of each of the rows that a rank says, [rank], by row, on every rank. `mine` has
  // those of this one.
  Result<std::map<size_t, double>> gather_numbers(const std::vector<Rows>& said,
                                                  const std::map<size_t, double>& mine,
                                                  const std::string& what);
  TransferCounts listed_numbers(const std::vector<Rows>& said) const;
  // The rows of fields that each rank, [rank], needs and lacks to that rank, at once; or all rows
  // to the first one. Every rank must call it, and end_step() after it.
  Status bring(const std::vector<Field>& fields, const std::vector<SampleRows>& needed);
  Status bring_to_first(const std::vector<Field>& fields);
  // Whole numbers that each rank says, on every rank, [rank]: so many as `sizes` has of it, which
  // every rank knows. One collective (GatheredPieces). Every rank must call it.
  Result<std::vector<std::vector<int32_t>>> gather_words(const std::vector<int32_t>& mine,
                                                         const std::vector<int64_t>& sizes,
                                                         const std::string& what);
  // The text of every rank, on every rank.
  Result<std::vector<std::string>> gather_text(const std::string& mine, const std::string& what);

 private:
  // Of these the fields that somebody has written.
  std::vector<Field> written(const std::vector<Field>& fields) const;
  void send(const std::vector<Field>& fields, const FieldMove& move);
  void receive(int32_t exchange, const std::vector<Field>& fields, const FieldMove& move);
  // said_by_rank() of fields that have the same.
  std::vector<Rows> spoken(const std::vector<Field>& fields) const;
  // How many numbers each rank says in a share.
  GatheredPieces said_in(const std::vector<Rows>& spoken, size_t fields, int64_t beside) const;
  // What all ranks bring together, [rank]: `mine` of this one. Collective where there is anything.
  Result<std::vector<at::Tensor>> gather(const at::Tensor& mine, const GatheredPieces& pieces,
                                         const std::string& what);
  TransferCounts listed(const GatheredPieces& pieces, int64_t number_bytes) const;
  at::Tensor own_words(const std::vector<Field>& fields, const Rows& rows,
                       const SaidBeside& beside);
  // `words`: what each rank says of the field, [rank].
  Status hear(const Field& field, const std::vector<Rows>& spoken,
              const std::vector<at::Tensor>& words);

  Communicator* everyone_;
  SampleStore& store_;
  StoredFields stored_;
  FieldContents& contents_;
  FieldHoldings holdings_;
  std::list<Arrival> arriving_;  // in the order in which they began
  std::list<std::pair<at::Tensor, Pending>> sending_;
};

}  // namespace braid::inline samples
