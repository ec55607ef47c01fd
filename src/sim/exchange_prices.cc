#include "sim/exchange_prices.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>

#include "program/listed_messages.h"

namespace braid::inline sim {
namespace {

// Follows the table of exchanges as the runtime does, over the samples of the step.
class Walk {
 public:
  Walk(const Program& program, const SampleLengths& lengths, const RowsOf& written,
       const RowsOf& read, const LinkOf& link)
      : program_(program),
        lengths_(lengths),
        written_by_(written),
        read_by_(read),
        link_(link),
        holdings_(program.ranks.size()) {}

  std::vector<ExchangePrice> exchange(const Exchange& entry) {
    note_written(entry.producer, entry.part);
    const size_t ranks = program_.ranks.size();
    const std::vector<SampleRows> needed = read_by_(entry.consumer, entry.part);
    std::vector<ExchangePrice> out(ranks);
    // Seconds by rank: to others and from them, inside the node and beyond it.
    std::vector<std::array<double, 4>> busy(ranks, {0, 0, 0, 0});
    std::vector<MovedField> fields;
    for (const std::string& name : entry.fields) fields.push_back({name, sizes(name)});
    for (const FieldMove& move : holdings_.bring(fields, needed, entry.members)) {
      const auto bytes = static_cast<double>(bytes_of(move, fields));
      if (bytes == 0) continue;
      const LinkTime time = link_(DeviceId{move.from}, DeviceId{move.to}, bytes);
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

  // Bytes of a share: each of its fields of each sample, and what else ranks say in it.
  double shared_bytes(const Exchange& entry) {
    const Call& call = program_.graph.calls[entry.producer.value];
    int64_t numbers = std::ssize(program_.ranks) * words_beside(call);
    if (tells_scores(call)) numbers += std::ssize(lengths_.prompt);
    for (const std::string& name : entry.fields) {
      const std::vector<int64_t> of_field = sizes(name);
      numbers += std::accumulate(of_field.begin(), of_field.end(), int64_t{0});
    }
    return static_cast<double>(numbers * kNumberBytes);
  }

 private:
  void note_written(CallId id, SamplePart part) {
    if (!written_.insert({id, part}).second) return;
    const std::vector<SampleRows> rows = written_by_(id, part);
    for (const Field& field : program_.graph.calls[id.value].writes)
      holdings_.note(field.name, rows, lengths_.prompt.size());
  }

  // Numbers that each sample of the step has of a field.
  std::vector<int64_t> sizes(const std::string& name) const {
    const Field& field = field_of(name);
    const bool prompts = field.shape == FieldShape::kPerSample && field.type == FieldType::kTokens;
    if (!prompts && field.shape == FieldShape::kPerSample)
      return std::vector<int64_t>(lengths_.prompt.size(), 1);
    return prompts ? lengths_.prompt : lengths_.response;
  }
  const Field& field_of(const std::string& name) const {
    for (const Call& call : program_.graph.calls)
      for (const Field& written : call.writes)
        if (written.name == name) return written;
    BRAID_CHECK(false, "an exchange has fields of the graph");
  }

  const Program& program_;
  const SampleLengths& lengths_;
  const RowsOf& written_by_;
  const RowsOf& read_by_;
  const LinkOf& link_;
  FieldHoldings holdings_;
  std::set<std::pair<CallId, SamplePart>> written_;
};

}  // namespace

std::vector<std::vector<ExchangePrice>> price_exchanges(
    const Program& program, const SampleLengths& lengths, const RowsOf& written, const RowsOf& read,
    const LinkOf& link, const std::function<double(double bytes)>& share_s) {
  Walk walk(program, lengths, written, read, link);
  std::vector<std::vector<ExchangePrice>> out;
  for (const Exchange& entry : program.exchanges) {
    if (!entry.shared()) {
      out.push_back(walk.exchange(entry));
      continue;
    }
    ExchangePrice price;
    price.sent = price.received = walk.shared_bytes(entry);
    if (program.ranks.size() > 1) price.seconds = share_s(price.sent);
    out.emplace_back(program.ranks.size(), price);
  }
  return out;
}

}  // namespace braid::inline sim
