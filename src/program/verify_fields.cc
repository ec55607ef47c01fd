#include "program/verify_fields.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/contains.h"
#include "base/text.h"
#include "program/early_update.h"
#include "program/exchange.h"
#include "program/scored_prefixes.h"
#include "program/streamed_update.h"

namespace braid::inline program {
namespace {

// Whether some rank of the reader may lack what the producer writes: they are not one rank alone.
bool on_several(const Program& program, CallId producer, CallId reader) {
  const auto& from = program.calls[producer.value].mesh.devices;
  const auto& to = program.calls[reader.value].mesh.devices;
  return from.size() > 1 || from != to;
}

Status verify_members(const Program& program, const Exchange& e) {
  const auto wrong = [](DeviceId rank, const char* what) {
    return invalid_input(cat("rank ", rank, " ", what));
  };
  for (size_t i = 0; i < e.members.size(); ++i) {
    if (e.members[i].value < 0 || e.members[i].value >= std::ssize(program.ranks))
      return wrong(e.members[i], "is not in the program");
    if (i > 0 && !(e.members[i - 1] < e.members[i]))
      return wrong(e.members[i], "is out of the order of its members");
  }
  if (e.shared() || program.calls.empty()) return ok_status();
  const auto is_member = [&](DeviceId rank) {
    return std::binary_search(e.members.begin(), e.members.end(), rank);
  };
  std::vector<bool> meant(program.ranks.size());
  for (const CallId call : {e.producer, e.consumer})
    for (const DeviceId rank : program.calls[call.value].mesh.devices) {
      if (!is_member(rank)) return wrong(rank, "of its calls is no member");
      meant[rank.value] = true;
    }
  for (const DeviceId rank : e.members)
    if (!meant[rank.value]) return wrong(rank, "is a member, and of none of its calls");
  return ok_status();
}

// The parts of the samples in which fields go from one call to another.
std::vector<SamplePart> exchanged_parts(const Program& program, CallId producer, CallId reader) {
  if (reader.value < 0) return {SamplePart::kAll};
  std::vector<SamplePart> out;
  for (const SamplePart part : parts_of_call(program, reader)) {
    const SamplePart needed = exchanged_part(program, producer, reader, part);
    if (!contains(out, needed)) out.push_back(needed);
  }
  return out;
}

// Whether the reader scores beginnings of what the producer still generates, in that part.
bool brings_beginnings(const Program& program, CallId producer, CallId reader, SamplePart part) {
  return reader.value >= 0 && producer == program.scoring.generate &&
         prefix_part(program, reader, part) == PrefixPart::kBeginnings;
}

Status verify_exchange(const Program& program, const Exchange& e) {
  const auto calls = static_cast<int32_t>(program.graph.calls.size());
  if (e.producer.value < 0 || e.producer.value >= calls || e.consumer.value >= calls)
    return invalid_input("names a call that the graph does not have");
  if (!contains(exchanged_parts(program, e.producer, e.consumer), e.part))
    return invalid_input("is of a part of the samples that its calls do not have");
  const Call& from = program.graph.calls[e.producer.value];
  for (const std::string& name : e.fields)
    if (name != kBegunIds && std::none_of(from.writes.begin(), from.writes.end(),
                                          [&](const Field& field) { return field.name == name; }))
      return invalid_input(cat(from.name, " does not write ", name));
  std::vector<std::string> taken =
      e.shared() ? shared_fields(from) : exchanged_fields(program.graph, e.producer, e.consumer);
  if (brings_beginnings(program, e.producer, e.consumer, e.part)) taken.emplace_back(kBegunIds);
  if (!e.shared())
    for (const std::string& name : streamed_fields(program, e.producer, e.consumer, e.part))
      taken.push_back(name);
  for (size_t i = 0; i < e.fields.size(); ++i) {
    if (!contains(taken, e.fields[i]))
      return invalid_input(cat("nobody takes ", e.fields[i], " of ", from.name, " by it"));
    if (std::find(e.fields.begin(), e.fields.begin() + static_cast<int64_t>(i), e.fields[i]) !=
        e.fields.begin() + static_cast<int64_t>(i))
      return invalid_input(cat("moves ", e.fields[i], " twice"));
  }
  return verify_members(program, e);
}

// Every field that one call gives and another takes is in an entry, for each part of the samples.
Status verify_need(const Program& program, CallId producer, CallId reader,
                   const std::vector<std::string>& fields) {
  const std::vector<SamplePart> parts = exchanged_parts(program, producer, reader);
  const auto brought = [&](const std::string& field, SamplePart part) -> Status {
    for (const Exchange& e : program.exchanges)
      if (e.producer == producer && e.consumer == reader && e.part == part &&
          contains(e.fields, field))
        return ok_status();
    return invalid_input(
        cat("no exchange brings ", field, " of ", program.graph.calls[producer.value].name,
            reader.value < 0 ? " to all" : cat(" to ", program.graph.calls[reader.value].name)));
  };
  for (const SamplePart part : parts) {
    for (const std::string& field : fields) BRAID_TRY(brought(field, part));
    if (brings_beginnings(program, producer, reader, part)) BRAID_TRY(brought(kBegunIds, part));
    if (reader.value < 0) continue;
    for (const std::string& field : streamed_fields(program, producer, reader, part))
      BRAID_TRY(brought(field, part));
  }
  return ok_status();
}

class FieldWalk {
 public:
  FieldWalk(const Program& program, size_t rank)
      : program_(program),
        self_(DeviceId{static_cast<int32_t>(rank)}),
        list_(program.ranks[rank].instructions),
        shared_(program.graph.calls.size()) {}

  Status run() {
    for (size_t i = 0; i < list_.size(); ++i) {
      if (const Status status = step(i); !status.ok())
        return status.at(
            cat("rank ", self_, ", instruction ", i, " (", op_kind_name(list_[i].kind), ")"));
      const Instruction& done = list_[i];
      if (done.kind == OpKind::kHandOver) ++handed_;
      if (done.kind == OpKind::kCall || done.kind == OpKind::kRegionEnd) note_end(done);
      if (done.kind == OpKind::kShare)
        shared_[program_.exchanges[done.detail].producer.value] = true;
    }
    return ok_status();
  }

 private:
  void note_end(const Instruction& done) {
    ended_.insert({done.call.value, done.part});
    if (done.part == parts_of_call(program_, done.call).back())
      ended_.insert({done.call.value, SamplePart::kAll});
  }

  Status step(size_t i) const {
    if (moves_fields(list_[i].kind)) return give(program_.exchanges[list_[i].detail]);
    return starts_call(list_[i].kind) ? start_call(i) : ok_status();
  }

  const std::string& name(CallId call) const { return program_.graph.calls[call.value].name; }

  Status give(const Exchange& exchange) const {
    const CallId from = exchange.producer;
    const bool handed =
        of_hand_over(program_, from, exchange.part) && from == program_.scoring.generate;
    const bool made = handed
                          ? static_cast<int64_t>(exchange.part) <= handed_
                          : ended_.count({from.value, parts_given(program_, exchange).back()}) > 0;
    // An earlier step has made it.
    if (!exchange.shared() && of_other_steps(program_.graph, from, exchange.consumer))
      return ok_status();
    if (made || !contains(program_.calls[from.value].mesh.devices, self_)) return ok_status();
    return invalid_input(cat("gives away what ", name(from), " writes before that"));
  }

  Status start_call(size_t at) const {
    const CallId reader = list_[at].call;
    for (int32_t p = 0; p < std::ssize(program_.graph.calls); ++p) {
      const CallId producer{p};
      auto fields = exchanged_fields(program_.graph, producer, reader);
      for (const std::string& name : streamed_fields(program_, producer, reader, list_[at].part))
        fields.push_back(name);
      if (!fields.empty() && on_several(program_, producer, reader) &&
          !waits_for_exchange(at, producer))
        return invalid_input(cat("reads ", fields.front(), " without waiting for its exchange"));
      // Of what has finished all ranks are told when the generation is handed over; what it is
      // worth those find who need it.
      const bool told = of_hand_over(program_, producer, list_[at].part) &&
                        of_hand_over(program_, reader, list_[at].part) &&
                        static_cast<int64_t>(list_[at].part) <= handed_;
      if (shares_with(producer, reader) && !shared_[p] && !told)
        return invalid_input(cat("reads what ", name(producer), " shares before that is shared"));
    }
    return ok_status();
  }

  // Whether a call waits for its exchange of a producer, and for all before it of that producer,
  // which may bring what it lacks.
  bool waits_for_exchange(size_t at, CallId producer) const {
    const std::vector<InstructionId>& after = list_[at].after;
    for (size_t before = 0; before < at; ++before) {
      if (list_[before].kind != OpKind::kExchange) continue;
      const Exchange& exchange = program_.exchanges[list_[before].detail];
      if (exchange.producer != producer) continue;
      const InstructionId id{static_cast<int32_t>(before)};
      if (std::find(after.begin(), after.end(), id) == after.end()) return false;
      const CallId reader = list_[at].call;
      if (exchange.consumer == reader &&
          exchange.part == exchanged_part(program_, producer, reader, list_[at].part))
        return true;
    }
    return false;
  }

  bool shares_with(CallId producer, CallId reader) const {
    const Call& from = program_.graph.calls[producer.value];
    if (!ends_with_share(from) || of_other_steps(program_.graph, producer, reader)) return false;
    const std::vector<std::string>& reads = program_.graph.calls[reader.value].reads;
    const std::vector<std::string> shared = shared_fields(from);
    // What a rank writes when it has heard the others' sums.
    const bool all = words_beside(from) > 0;
    return std::any_of(from.writes.begin(), from.writes.end(), [&](const Field& field) {
      return contains(reads, field.name) && (all || contains(shared, field.name));
    });
  }

  const Program& program_;
  const DeviceId self_;
  const std::vector<Instruction>& list_;
  std::set<std::pair<int32_t, SamplePart>> ended_;  // parts of calls, and calls
  std::vector<bool> shared_;                        // by call
  int64_t handed_ = 0;                              // how often the generation was handed over
};

}  // namespace

Status verify_exchange_table(const Program& program) {
  for (size_t i = 0; i < program.exchanges.size(); ++i)
    BRAID_TRY(verify_exchange(program, program.exchanges[i]).at(cat("exchange ", i)));
  for (size_t i = 0; i < program.exchanges.size(); ++i)
    for (size_t before = 0; before < i; ++before)
      if (program.exchanges[i].producer == program.exchanges[before].producer &&
          program.exchanges[i].consumer == program.exchanges[before].consumer &&
          program.exchanges[i].part == program.exchanges[before].part)
        return invalid_input(cat("exchange ", i, ": is between the calls of exchange ", before));
  const auto calls = static_cast<int32_t>(program.graph.calls.size());
  for (CallId producer{0}; producer.value < calls; ++producer.value) {
    const Call& from = program.graph.calls[producer.value];
    if (ends_with_share(from))
      BRAID_TRY(verify_need(program, producer, CallId{-1}, shared_fields(from)));
    for (CallId reader{0}; reader.value < calls; ++reader.value)
      if (!program.calls.empty() && on_several(program, producer, reader))
        BRAID_TRY(verify_need(program, producer, reader,
                              exchanged_fields(program.graph, producer, reader)));
  }
  return ok_status();
}

Status verify_fields(const Program& program, size_t rank) { return FieldWalk(program, rank).run(); }

}  // namespace braid::inline program
