// What the exchanges and shares of a program take: the rows that its partitions move
// (program/exchange.h) with the lengths of one step. Pure; thread-safe.
#pragma once

#include <functional>
#include <vector>

#include "program/exchange.h"
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

// Of every entry of the program's table, [entry][rank]; a share's ranks are alike: all wait for the
// slowest. `written` and `read` give the rows of each rank, [rank], of a call or a part of its
// samples: those whose results it has, and those that it needs. `link`: the seconds of a message.
using RowsOf = std::function<std::vector<SampleRows>(CallId, SamplePart)>;
using LinkOf = std::function<LinkTime(DeviceId from, DeviceId to, double bytes)>;
std::vector<std::vector<ExchangePrice>> price_exchanges(
    const Program& program, const SampleLengths& lengths, const RowsOf& written, const RowsOf& read,
    const LinkOf& link, const std::function<double(double bytes)>& share_s);

}  // namespace braid::inline sim
