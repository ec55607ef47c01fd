// Lists that are changed as a fault would change them: for tests of what verify() refuses, and of
// what becomes of a job whose lists nobody verified. Only tests include this. Pure.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "base/text.h"
#include "program/verify_ops.h"

namespace braid::inline program {

enum class Mutation {
  kDropAfter,
  kSwapMessages,
  kDeleteSend,
  kRedirectReceive,
  kDropGather,
  kSwapCalls
};
inline constexpr int kMutations = 6;
inline const char* mutation_name(Mutation mutation) {
  static constexpr const char* kNames[kMutations] = {"drop an after", "swap two messages",
                                                     "delete a send", "redirect a receive",
                                                     "drop a gather", "swap two calls"};
  return kNames[static_cast<int>(mutation)];
}

// One change: of the lists and tables of a program, or of the ops of a call on a rank.
struct Mutant {
  Mutation mutation = Mutation::kDropAfter;
  std::string what;                                 // and where
  std::function<void(Program*)> change_lists = {};  // null: the ops are changed
  CallId call = {-1};                               // whose ops
  ChangeOps change_ops = {};

  Program lists(Program program) const {
    if (change_lists) change_lists(&program);
    return program;
  }
};

// Leaves out an instruction; what is behind it moves up, and nobody waits for it.
inline void erase_instruction(Program* program, size_t rank, size_t index) {
  auto& list = program->ranks[rank].instructions;
  list.erase(list.begin() + static_cast<int64_t>(index));
  for (Instruction& i : list)
    for (auto* waits : {&i.after, &i.within}) {
      std::erase_if(*waits,
                    [&](InstructionId id) { return id.value == static_cast<int32_t>(index); });
      for (InstructionId& id : *waits)
        if (id.value > static_cast<int32_t>(index)) --id.value;
    }
}

// [first, middle) and [middle, last) change places; waits for what is behind now are gone.
inline void change_places(std::vector<Instruction>* list, size_t first, size_t middle,
                          size_t last) {
  std::rotate(list->begin() + static_cast<int64_t>(first),
              list->begin() + static_cast<int64_t>(middle),
              list->begin() + static_cast<int64_t>(last));
  const auto moved = [&](InstructionId id) {
    const auto at = static_cast<size_t>(id.value);
    if (at < first || at >= last) return id;
    const size_t to = at < middle ? at + (last - middle) : at - (middle - first);
    return InstructionId{static_cast<int32_t>(to)};
  };
  for (size_t i = 0; i < list->size(); ++i)
    for (auto* waits : {&(*list)[i].after, &(*list)[i].within}) {
      for (InstructionId& id : *waits) id = moved(id);
      std::erase_if(*waits, [&](InstructionId id) { return id.value >= static_cast<int>(i); });
    }
}
inline void swap_neighbours(std::vector<Instruction>* list, size_t first) {
  change_places(list, first, first + 1, first + 2);
}

// Leaves an op out: what is behind it moves up, and waits for the op before it in its place.
inline void erase_op(Expansion* e, size_t index) {
  e->ops.erase(e->ops.begin() + static_cast<int64_t>(index));
  for (Op& op : e->ops)
    for (int32_t& before : op.after)
      if (before >= static_cast<int32_t>(index)) --before;
}

// Every change of a program and of its ops, kind by kind; a test draws of them.
class MutantSites {
 public:
  // `ops`: of calls with a model, by call and in the order of the mesh; empty: of none.
  MutantSites(const Program& program, const std::vector<std::vector<Expansion>>& ops)
      : program_(program), sites_(kMutations) {
    for (size_t rank = 0; rank < program.ranks.size(); ++rank) add_list(rank);
    for (size_t entry = 0; entry < program.reallocations.size(); ++entry) add_messages(entry);
    for (size_t entry = 0; entry < program.exchanges.size(); ++entry) add_exchange(entry);
    for (const auto& ranks : ops)
      for (const Expansion& e : ranks) add_ops(e);
  }

  const std::vector<Mutant>& of(Mutation mutation) const {
    return sites_[static_cast<size_t>(mutation)];
  }

  // So many, as many of each kind as there are; each at another place.
  std::vector<Mutant> draw(size_t count, uint64_t seed) const {
    std::vector<std::vector<Mutant>> left = sites_;
    RandomStream random(seed, 0);
    std::vector<Mutant> out;
    for (size_t n = 0, empty = 0; out.size() < count && empty < kMutations; ++n) {
      std::vector<Mutant>& kind = left[n % kMutations];
      empty = kind.empty() ? empty + 1 : 0;
      if (kind.empty()) continue;
      std::swap(kind[random.below(kind.size())], kind.back());
      out.push_back(std::move(kind.back()));
      kind.pop_back();
    }
    return out;
  }

 private:
  using List = std::vector<Instruction>;

  Mutant& add(Mutation mutation, const std::string& what,
              std::function<void(Program*)> change_lists = {}) {
    auto& kind = sites_[static_cast<size_t>(mutation)];
    kind.push_back({mutation, cat(mutation_name(mutation), ": ", what), std::move(change_lists)});
    return kind.back();
  }
  static std::string text(size_t rank, const List& list, size_t at) {
    return cat("rank ", rank, ", instruction ", at, " (", op_kind_name(list[at].kind), ")");
  }

  void add_list(size_t rank) {
    const List& list = program_.ranks[rank].instructions;
    for (size_t i = 0; i < list.size(); ++i) {
      add_waits(rank, i);
      const OpKind kind = list[i].kind;
      const auto drop = [rank, i](Program* program) { erase_instruction(program, rank, i); };
      if (kind == OpKind::kExchange || kind == OpKind::kReallocate)
        add(Mutation::kDeleteSend, text(rank, list, i), drop);
      if (kind == OpKind::kAllGather || kind == OpKind::kReduce || kind == OpKind::kShare ||
          kind == OpKind::kTally || kind == OpKind::kHandOver)
        add(Mutation::kDropGather, text(rank, list, i), drop);
      if (moves(kind) && i + 1 < list.size() && moves(list[i + 1].kind)) swap_moves(rank, i);
      if (starts_call(kind)) swap_calls(rank, i);
    }
  }
  static bool moves(OpKind kind) {
    return kind == OpKind::kExchange || kind == OpKind::kReallocate || kind == OpKind::kShare;
  }

  void add_waits(size_t rank, size_t i) {
    const List& list = program_.ranks[rank].instructions;
    for (const bool within : {false, true}) {
      const size_t waits = (within ? list[i].within : list[i].after).size();
      for (size_t k = 0; k < waits; ++k)
        add(Mutation::kDropAfter, cat(text(rank, list, i), ", wait ", k), [=](Program* program) {
          Instruction& changed = program->ranks[rank].instructions[i];
          auto& after = within ? changed.within : changed.after;
          after.erase(after.begin() + static_cast<int64_t>(k));
        });
    }
  }

  void swap_moves(size_t rank, size_t i) {
    add(Mutation::kSwapMessages, text(rank, program_.ranks[rank].instructions, i),
        [=](Program* program) { swap_neighbours(&program->ranks[rank].instructions, i); });
  }

  // Where the call that begins at an instruction ends.
  static size_t behind_call(const List& list, size_t begin) {
    size_t end = begin + 1;
    while (end < list.size() && inside_region(list[end].kind)) ++end;
    return end;
  }

  void swap_calls(size_t rank, size_t begin) {
    const List& list = program_.ranks[rank].instructions;
    const size_t end = behind_call(list, begin);
    size_t next = end;
    while (next < list.size() && !starts_call(list[next].kind)) ++next;
    if (next == list.size()) return;
    const size_t first = end - begin, between = next - end, second = behind_call(list, next) - next;
    add(Mutation::kSwapCalls, cat(text(rank, list, begin), " and ", next), [=](Program* program) {
      List* const changed = &program->ranks[rank].instructions;
      change_places(changed, begin, next, next + second);
      change_places(changed, begin + second, begin + second + first,
                    begin + second + first + between);
    });
  }

  using Messages = std::vector<Message>;
  void add_message(Mutation mutation, size_t entry, size_t i,
                   const std::function<void(Messages*)>& change) {
    add(mutation, cat("reallocation ", entry, ", message ", i),
        [entry, change](Program* program) { change(&program->reallocations[entry].messages); });
  }

  void add_messages(size_t entry) {
    const Reallocation& whole = program_.reallocations[entry];
    for (size_t i = 0; i < whole.messages.size(); ++i) {
      add_message(Mutation::kDeleteSend, entry, i, [i](Messages* messages) {
        messages->erase(messages->begin() + static_cast<int64_t>(i));
      });
      const Message& message = whole.messages[i];
      for (const DeviceId other : whole.members) {
        if (other != message.to)
          add_message(Mutation::kRedirectReceive, entry, i,
                      [=](Messages* messages) { (*messages)[i].to = other; });
        if (other != message.from)
          add_message(Mutation::kRedirectReceive, entry, i,
                      [=](Messages* messages) { (*messages)[i].from = other; });
      }
      for (size_t j = i + 1; j < whole.messages.size(); ++j)
        if (whole.messages[j].from == message.from && whole.messages[j].to == message.to)
          add_message(Mutation::kSwapMessages, entry, i,
                      [=](Messages* messages) { std::swap((*messages)[i], (*messages)[j]); });
    }
  }

  void add_exchange(size_t entry) {
    const Exchange& whole = program_.exchanges[entry];
    for (size_t f = 0; f < whole.fields.size(); ++f)
      add(Mutation::kDeleteSend, cat("exchange ", entry, ", ", whole.fields[f]),
          [=](Program* program) {
            auto& fields = program->exchanges[entry].fields;
            fields.erase(fields.begin() + static_cast<int64_t>(f));
          });
    const auto calls = static_cast<int32_t>(program_.graph.calls.size());
    for (int32_t call = whole.producer.value + 1; call < calls && !whole.shared(); ++call)
      if (call != whole.consumer.value)
        add(Mutation::kRedirectReceive, cat("exchange ", entry, " to call ", call),
            [=](Program* program) { program->exchanges[entry].consumer = CallId{call}; });
  }

  // A change of the ops of a call on a rank, at one of them.
  void add_op(Mutation mutation, const Expansion& e, size_t at,
              const std::function<void(Expansion*)>& change) {
    Mutant& mutant =
        add(mutation, cat("call ", program_.graph.calls[e.call.value].name, ", rank ", e.rank,
                          ", op ", at, " (", op_kind_name(e.ops[at].kind), ")"));
    mutant.call = e.call;
    mutant.change_ops = [call = e.call, rank = e.rank, at, change](Expansion* ops) {
      if (ops->call == call && ops->rank == rank && at < ops->ops.size()) change(ops);
    };
  }

  void add_ops(const Expansion& e) {
    for (size_t i = 0; i < e.ops.size(); ++i) {
      const Op& op = e.ops[i];
      for (const size_t slot : {size_t{0}, size_t{1}})
        if (op.after[slot] >= 0)
          add_op(Mutation::kDropAfter, e, i,
                 [i, slot](Expansion* ops) { ops->ops[i].after[slot] = -1; });
      if (op.kind == OpKind::kSend)
        add_op(Mutation::kDeleteSend, e, i, [i](Expansion* ops) { erase_op(ops, i); });
      if (op.kind == OpKind::kReceive) redirect(e, i);
      if (op.kind == OpKind::kAllGather || op.kind == OpKind::kAllReduce ||
          op.kind == OpKind::kReduceScatter || op.kind == OpKind::kBroadcast ||
          op.kind == OpKind::kAgree)
        add_op(Mutation::kDropGather, e, i, [i](Expansion* ops) { erase_op(ops, i); });
      swap_with_next(e, i);
    }
  }

  void redirect(const Expansion& e, size_t i) {
    for (size_t other = 0; other < program_.ranks.size(); ++other) {
      const DeviceId peer{static_cast<int32_t>(other)};
      if (peer != e.ops[i].peer)
        add_op(Mutation::kRedirectReceive, e, i,
               [i, peer](Expansion* ops) { ops->ops[i].peer = peer; });
    }
  }

  // A message with the next one of its pair, on one of its ends.
  void swap_with_next(const Expansion& e, size_t i) {
    const Op& op = e.ops[i];
    if (op.kind != OpKind::kSend && op.kind != OpKind::kReceive) return;
    for (size_t j = i + 1; j < e.ops.size(); ++j) {
      const Op& next = e.ops[j];
      if (next.kind != op.kind || next.peer != op.peer || next.channel != op.channel) continue;
      return add_op(Mutation::kSwapMessages, e, i,
                    [i, j](Expansion* ops) { std::swap(ops->ops[i], ops->ops[j]); });
    }
  }

  const Program& program_;
  std::vector<std::vector<Mutant>> sites_;
};

// The round of a generation whose ops are changed: one as those that runs have most often.
inline const RoundWork& mutated_round() {
  static const RoundWork round{0, 2, false};
  return round;
}
// The ops of a call on a rank, for a partition of its samples or, of a generation, of one round.
inline Expansion unchanged_ops(const CallFrame& frame, DeviceId rank, const Partition& partition) {
  return frame.kind == CallKind::kGenerate ? expand(frame, rank, mutated_round())
                                           : expand(frame, rank, partition);
}

// What is wrong with a mutant; "" where nothing is found. `partitions`: by call, of which the ops
// were made.
inline std::string refusal(const Program& program, const Mutant& mutant,
                           const std::vector<Partition>& partitions) {
  if (mutant.change_lists) return verify(mutant.lists(program)).message();
  const CallFrame frame = call_frame(program, mutant.call);
  std::vector<Expansion> ranks;
  for (const DeviceId rank : frame.where->mesh.devices) {
    ranks.push_back(unchanged_ops(frame, rank, partitions[mutant.call.value]));
    mutant.change_ops(&ranks.back());
  }
  if (frame.kind == CallKind::kGenerate)
    return verify_round(frame, ranks, mutated_round()).message();
  return verify_ops(frame, ranks, partitions[mutant.call.value]).message();
}

// The ops of all calls with a model for these partitions, as MutantSites takes them.
inline std::vector<std::vector<Expansion>> ops_of(const Program& program,
                                                  const std::vector<Partition>& partitions) {
  std::vector<std::vector<Expansion>> out(program.graph.calls.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const Call& call = program.graph.calls[i];
    if (!uses_model(call)) continue;
    const CallFrame frame = call_frame(program, CallId{static_cast<int32_t>(i)});
    for (const DeviceId rank : frame.where->mesh.devices)
      out[i].push_back(unchanged_ops(frame, rank, partitions[i]));
  }
  return out;
}

// A partition for every call of samples of unequal lengths, in `minibatches` where it trains.
inline std::vector<Partition> drawn_partitions(const Program& program, int64_t samples,
                                               int minibatches) {
  std::vector<Partition> out;
  for (size_t i = 0; i < program.graph.calls.size(); ++i) {
    std::vector<PartitionSample> drawn;
    for (int64_t s = 0; s < samples; ++s)
      drawn.push_back({SampleId{s}, GroupId{s / 2}, 5 + s % 3, 3 + s * 7 % 11});
    PartitionOptions options;
    options.trains = program.graph.calls[i].kind == CallKind::kTrainStep;
    options.minibatches = minibatches;
    const bool passes = uses_model(program.graph.calls[i]);
    out.push_back(passes ? partition_samples(drawn, program.calls[i].strategy, options)
                         : Partition{});
  }
  return out;
}

}  // namespace braid::inline program
