// What the exchanges and shares of a program take: the rows that its partitions move
// (program/exchange_walk.h) with the lengths of one step. Pure; thread-safe.
#pragma once

#include <functional>
#include <vector>

#include "program/exchange_walk.h"
#include "sim/call_work.h"

namespace braid::inline sim {

// What one rank does in an exchange: its links are busy with what it sends or receives, whichever
// takes longer, inside the node and beyond it.
struct ExchangePrice {
  double seconds = 0;
  double sent = 0, received = 0;         // bytes
  bool inside = false, network = false;  // links that it uses
  std::vector<int32_t> senders = {};     // ranks that send to it in an exchange: it waits for them
};

// Numbers that each sample of a step has of a field.
std::vector<int64_t> numbers_of(const Field& field, const SampleLengths& lengths);

// Seconds of a message, and of a collective of all ranks.
struct ExchangeLinks {
  std::function<LinkTime(DeviceId from, DeviceId to, double bytes)> link;
  std::function<double(OpKind kind, double bytes)> everyone_s;
};

// Of every entry of the program's table, [entry][rank]; a share's ranks are alike: all wait for the
// slowest. `rows`: of the step; `begun`: new tokens so far of what is left at the last hand-over,
// by row.
std::vector<std::vector<ExchangePrice>> price_exchanges(
    const Program& program, const Workload& workload, const SampleLengths& lengths,
    const std::vector<int64_t>& begun, RowsByRank& rows, const ExchangeLinks& links);

}  // namespace braid::inline sim
