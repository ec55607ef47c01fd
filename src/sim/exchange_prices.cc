#include "sim/exchange_prices.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "program/listed_messages.h"
#include "program/scored_prefixes.h"

namespace braid::inline sim {
namespace {

std::vector<ExchangePrice> price_moves(const ExchangeWalk::Moves& moves, size_t ranks,
                                       const ExchangeLinks& links) {
  std::vector<ExchangePrice> out(ranks);
  // Seconds by rank: to others and from them, inside the node and beyond it.
  std::vector<std::array<double, 4>> busy(ranks, {0, 0, 0, 0});
  for (const FieldMove& move : moves.moves) {
    const auto bytes = static_cast<double>(bytes_of(move, moves.fields));
    if (bytes == 0) continue;
    const LinkTime time = links.link(DeviceId{move.from}, DeviceId{move.to}, bytes);
    const bool network = time.link == LinkKind::kNetwork;
    busy[move.from][network ? 1 : 0] += time.seconds;
    busy[move.to][network ? 3 : 2] += time.seconds;
    out[move.from].sent += bytes, out[move.to].received += bytes;
    out[move.to].senders.push_back(move.from);
    for (const int32_t rank : {move.from, move.to})
      (network ? out[rank].network : out[rank].inside) = true;
  }
  for (size_t rank = 0; rank < ranks; ++rank)
    out[rank].seconds = *std::max_element(busy[rank].begin(), busy[rank].end());
  return out;
}

// Bytes of a share but of a fetch: each of its fields of each sample, and what else ranks say.
int64_t shared_bytes(const Program& program, const SampleLengths& lengths, const Exchange& entry) {
  const Call& call = program.graph.calls[entry.producer.value];
  int64_t numbers = std::ssize(program.ranks) * words_beside(call);
  if (tells_scores(call)) numbers += std::ssize(lengths.prompt);
  for (const Field& field : fields_of(program.graph, entry)) {
    const std::vector<int64_t> of_field = numbers_of(field, lengths);
    numbers += std::accumulate(of_field.begin(), of_field.end(), int64_t{0});
  }
  return numbers * kNumberBytes;
}

// Of all ranks together; one alone says nothing.
ExchangePrice price_share(const Program& program, const Workload& workload,
                          const SampleLengths& lengths, const Exchange& entry,
                          const ExchangeLinks& links) {
  const Call& call = program.graph.calls[entry.producer.value];
  const int64_t ranks = std::ssize(program.ranks);
  std::optional<ToldByAll> said;
  if (call.kind == CallKind::kFetch)
    said = told_in_fetch(call, workload.prompts, workload.samples_per_prompt, ranks);
  else if (ranks > 1)
    said = ToldByAll{OpKind::kAllGather, shared_bytes(program, lengths, entry)};
  ExchangePrice out;
  if (!said) return out;
  out.sent = out.received = static_cast<double>(said->bytes);
  out.seconds = links.everyone_s(said->kind, out.sent);
  return out;
}

}  // namespace

std::vector<int64_t> numbers_of(const Field& field, const SampleLengths& lengths) {
  if (field.shape == FieldShape::kPerToken) return lengths.response;
  return field.type == FieldType::kTokens ? lengths.prompt
                                          : std::vector<int64_t>(lengths.prompt.size(), 1);
}

std::vector<std::vector<ExchangePrice>> price_exchanges(
    const Program& program, const Workload& workload, const SampleLengths& lengths,
    const std::vector<int64_t>& begun, RowsByRank& rows, const ExchangeLinks& links) {
  const size_t ranks = program.ranks.size();
  const auto numbers = [&](const std::vector<Field>& fields) {
    std::vector<MovedField> out;
    for (const Field& field : fields)
      out.push_back({field.name, field.name == kBegunIds ? begun : numbers_of(field, lengths)});
    return out;
  };
  FieldHoldings holdings(ranks);
  ExchangeWalk walk(program, rows, holdings, numbers);
  std::vector<std::vector<ExchangePrice>> out;
  for (int32_t i = 0; i < std::ssize(program.exchanges); ++i) {
    const Exchange& entry = program.exchanges[i];
    if (entry.shared())
      out.emplace_back(ranks, price_share(program, workload, lengths, entry, links));
    else
      out.push_back(price_moves(walk.make(i, 0), ranks, links));
  }
  return out;
}

}  // namespace braid::inline sim
