#include "program/exchange.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <unordered_map>

#include "base/contains.h"
#include "program/computed_rows.h"
#include "program/expand.h"
#include "program/listed_messages.h"
#include "program/placement.h"

namespace braid::inline program {
namespace {

constexpr const char* kCut = "truncated";             // which responses were cut
constexpr const char* kSampled = "sampler_logprobs";  // those of the generation engine

// A name without the step that an unrolled graph gives it, and that step.
std::string base_name(const std::string& name) { return name.substr(0, name.find('@')); }
std::string step_of(const std::string& name) { return name.substr(base_name(name).size()); }

// Log-probs of the engine are recorded with the samples, and compared with the trainer's.
bool records(const Call& call, const std::string& name) {
  if (base_name(name) != kSampled || step_of(name) != step_of(call.name)) return false;
  if (call.kind == CallKind::kReward) return true;
  return call.kind == CallKind::kInfer && base_name(call.writes.front().name) == "old_logprobs";
}

SampleRows all_rows(int64_t samples) {
  SampleRows out(static_cast<size_t>(samples));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

bool same_step(const Call& a, const Call& b) {
  return step_of(a.name) == step_of(b.name) && a.steps_ahead == b.steps_ahead;
}

// Of tokens the functions of compute calls are given the lengths.
bool lengths_alone(const Field& field, const Call& reader) {
  return field.type == FieldType::kTokens && reader.kind == CallKind::kCompute;
}

// Whether the consumer reads what the producer made in an earlier step.
bool made_earlier(const Call& producer, const Call& consumer) {
  return producer.steps_ahead > consumer.steps_ahead;
}

}  // namespace

bool ends_with_share(const Call& call) {
  return call.kind == CallKind::kFetch || call.kind == CallKind::kGenerate ||
         call.kind == CallKind::kReward || call.kind == CallKind::kCompute;
}

std::vector<std::string> shared_fields(const Call& call) {
  std::vector<std::string> out;
  for (const Field& field : call.writes)
    if (field.type == FieldType::kCount || base_name(field.name) == kCut ||
        call.kind == CallKind::kReward)
      out.push_back(field.name);
  return out;
}

std::vector<std::vector<CallId>> shares_before(const Graph& graph,
                                               const std::vector<CallId>& order) {
  const auto waits = dependencies(graph);
  std::vector<std::vector<CallId>> out(order.size() + 1);
  for (size_t at = 0; at < order.size(); ++at) {
    const Call& sharing = graph.calls[order[at].value];
    if (!ends_with_share(sharing)) continue;
    size_t first = at + 1;
    // Nobody who works ahead waits in a share of the step, and nobody of the step in one of those.
    const auto passes = [&](CallId id) {
      if (sharing.kind == CallKind::kFetch) return false;
      const std::vector<CallId>& before = waits[id.value];
      const Call& call = graph.calls[id.value];
      if (made_earlier(sharing, call)) return true;
      return std::find(before.begin(), before.end(), order[at]) == before.end() &&
             step_of(call.name) == step_of(sharing.name) && call.steps_ahead == sharing.steps_ahead;
    };
    while (first < order.size() && passes(order[first])) ++first;
    out[first].push_back(order[at]);
  }
  return out;
}

std::vector<int32_t> shared_before(const Graph& graph) {
  std::vector<CallId> order;
  for (size_t i = 0; i < graph.calls.size(); ++i) order.push_back(CallId{static_cast<int32_t>(i)});
  const auto shares = shares_before(graph, order);
  std::vector<int32_t> out(graph.calls.size(), static_cast<int32_t>(graph.calls.size()));
  for (size_t at = 0; at < shares.size(); ++at)
    for (const CallId call : shares[at]) out[call.value] = static_cast<int32_t>(at);
  return out;
}

int32_t share_of_fetch(const Program& program) {
  const auto found =
      std::find_if(program.exchanges.begin(), program.exchanges.end(), [&](const Exchange& each) {
        return each.shared() && program.graph.calls[each.producer.value].kind == CallKind::kFetch;
      });
  return found == program.exchanges.end() ? -1
                                          : static_cast<int32_t>(found - program.exchanges.begin());
}

int64_t told_numbers(const Call& fetch, int64_t samples) {
  const auto writes = [&](const char* name) {
    return std::any_of(fetch.writes.begin(), fetch.writes.end(),
                       [&](const Field& field) { return field.name == name; });
  };
  const bool pairs = fetch.function == "pairs", answered = writes("response_ids");
  const int64_t answers = pairs ? 2 : (answered ? 1 : samples);
  return 1 + (writes("mismatched_ids") ? 2 : 0) +
         (answered ? answers * (writes("loss_mask") ? 2 : 1) : 0);
}

std::vector<int64_t> told_by_ranks(const Call& fetch, int64_t prompts, int64_t samples,
                                   int64_t ranks) {
  std::vector<int64_t> out;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const int64_t rows = run_begin(prompts, rank + 1, ranks) - run_begin(prompts, rank, ranks);
    out.push_back(words_beside(fetch) + rows * told_numbers(fetch, samples));
  }
  return out;
}

std::optional<ToldByAll> told_in_fetch(const Call& fetch, int64_t prompts, int64_t samples,
                                       int64_t ranks) {
  if (ranks == 1) return std::nullopt;
  const std::vector<int64_t> told = told_by_ranks(fetch, prompts, samples, ranks);
  const int64_t total = std::accumulate(told.begin(), told.end(), int64_t{0}),
                longest = *std::max_element(told.begin(), told.end());
  const bool sums = sums_pieces(total, longest, ranks);
  return ToldByAll{sums ? OpKind::kAllReduce : OpKind::kAllGather,
                   (sums ? total : ranks * longest) * kNumberBytes};
}

std::vector<std::vector<CallId>> waited_for(const Graph& graph) {
  std::vector<std::vector<CallId>> out = dependencies(graph);
  const std::vector<int32_t> shared = shared_before(graph);
  for (size_t i = 0; i < out.size(); ++i) {
    for (size_t before = 0; before < i; ++before)
      if (ends_with_share(graph.calls[before]) && shared[before] <= static_cast<int32_t>(i) &&
          same_step(graph.calls[before], graph.calls[i]))
        out[i].push_back(CallId{static_cast<int32_t>(before)});
    std::sort(out[i].begin(), out[i].end());
    out[i].erase(std::unique(out[i].begin(), out[i].end()), out[i].end());
  }
  return out;
}

std::vector<std::string> exchanged_fields(const Graph& graph, CallId producer, CallId consumer) {
  const Call& from = graph.calls[producer.value];
  const Call& to = graph.calls[consumer.value];
  std::vector<std::string> out;
  const bool everywhere = from.kind == CallKind::kFetch || from.kind == CallKind::kSelect ||
                          computed_by_readers(graph, from);
  const bool earlier = made_earlier(from, to) || producer.value < consumer.value;
  if (everywhere || !earlier) return out;
  const std::vector<std::string> shared =
      ends_with_share(from) ? shared_fields(from) : std::vector<std::string>{};
  for (const Field& field : from.writes)
    if (!contains(shared, field.name) && !lengths_alone(field, to) &&
        (contains(to.reads, field.name) || records(to, field.name)))
      out.push_back(field.name);
  return out;
}

// What a reward drops changes the rows of calls behind its share; what a select leaves, of those
// behind it. What an earlier step has made is there when the step begins, as its data are.
CallId exchanged_after(const Graph& graph, const std::vector<int32_t>& shared, CallId producer,
                       CallId consumer) {
  const bool there = made_earlier(graph.calls[producer.value], graph.calls[consumer.value]);
  CallId out = there ? CallId{0} : producer;
  for (int32_t i = 0; i < consumer.value; ++i) {
    if (!same_step(graph.calls[i], graph.calls[consumer.value])) continue;
    const bool drops = graph.calls[i].kind == CallKind::kReward &&
                       (there || producer.value < shared[i]) && shared[i] <= consumer.value &&
                       i != producer.value;
    const bool selects = graph.calls[i].kind == CallKind::kSelect && producer.value < i;
    if (drops || selects) out = CallId{i};
  }
  return out;
}

std::vector<DeviceId> exchange_members(const Program& program, CallId producer, CallId consumer) {
  std::set<DeviceId> members;
  for (const CallId call : {producer, consumer})
    for (const DeviceId device : program.calls[call.value].mesh.devices) members.insert(device);
  return {members.begin(), members.end()};
}

std::vector<SampleRows> rows_by_rank(const Program& program, CallId id, int64_t samples,
                                     std::vector<SampleRows> owned) {
  const CallPlacement& where = program.calls[id.value];
  if (owned.empty() && program.graph.calls[id.value].kind == CallKind::kGenerate)
    owned = partition_requests(samples, where.strategy);
  std::vector<SampleRows> out(program.ranks.size());
  for (size_t i = 0; i < where.mesh.devices.size(); ++i)
    out[where.mesh.devices[i].value] =
        owned.empty() ? all_rows(samples) : owned[grid_position(where.strategy, i).dp_rank];
  return out;
}

std::vector<SampleRows> on_heads(const Program& program, CallId call,
                                 const std::vector<SampleRows>& owned) {
  const CallPlacement& where = program.calls[call.value];
  std::vector<SampleRows> out(program.ranks.size());
  for (size_t i = 0; i < owned.size(); ++i)
    out[head_of(where, static_cast<int>(i)).value] = owned[i];
  return out;
}

CallId asked_beside(const Graph& graph, CallId reward) {
  const CallId generation = generation_of(graph, reward);
  return uses_model(graph.calls[reward.value]) || generation.value < 0 ? reward : generation;
}

std::vector<SampleRows> scored_by_rank(const Program& program, CallId reward,
                                       const std::vector<int64_t>& groups,
                                       const std::vector<SampleRows>& owned) {
  std::vector<SampleRows> out(program.ranks.size());
  if (program.rewards_together || owned.empty()) {
    const std::vector<DeviceId>& devices = program.calls[reward.value].mesh.devices;
    const DeviceId first = *std::min_element(devices.begin(), devices.end());
    out[first.value] = all_rows(std::ssize(groups));
    return out;
  }
  std::vector<int> owner(groups.size(), 0);
  for (size_t i = 0; i < owned.size(); ++i)
    for (const int32_t row : owned[i]) owner[row] = static_cast<int>(i);
  const CallPlacement& where = program.calls[asked_beside(program.graph, reward).value];
  std::map<int64_t, DeviceId> asks;  // by group
  for (size_t row = 0; row < groups.size(); ++row) {
    const auto [found, fresh] = asks.try_emplace(groups[row], DeviceId{});
    if (fresh) found->second = head_of(where, owner[row]);
    out[found->second.value].push_back(static_cast<int32_t>(row));
  }
  return out;
}

std::vector<SampleRows> written_by_rank(const Program& program, CallId id,
                                        std::vector<SampleRows> rows,
                                        const std::vector<SampleRows>& scored) {
  if (program.graph.calls[id.value].kind == CallKind::kReward) return scored;
  // All ranks of a generation replica are told the tokens.
  if (program.graph.calls[id.value].kind == CallKind::kGenerate) return rows;
  const CallPlacement& where = program.calls[id.value];
  for (size_t i = 0; i < where.mesh.devices.size(); ++i)
    if (grid_position(where.strategy, i).stage != where.strategy.pp - 1)
      rows[where.mesh.devices[i].value].clear();
  return rows;
}

std::vector<SampleRows> read_by_rank(const Program& program, CallId id,
                                     std::vector<SampleRows> rows,
                                     const std::vector<SampleRows>& scored) {
  const Call& call = program.graph.calls[id.value];
  if (call.kind != CallKind::kReward) return rows;
  if (!uses_model(call)) return scored;
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    std::set<int32_t> both(rows[rank].begin(), rows[rank].end());
    both.insert(scored[rank].begin(), scored[rank].end());
    rows[rank].assign(both.begin(), both.end());
  }
  return rows;
}

int64_t words_beside(const Call& call) {
  if (call.kind == CallKind::kFetch) return 1;
  if (call.kind == CallKind::kReward) return 3;
  return call.sums_step && call.steps_ahead == 0 ? kWordsOfSums : 0;
}

bool tells_scores(const Call& call) { return call.kind == CallKind::kReward && uses_model(call); }

// Rows that had the same ranks, and get the same, have the same ones again.
class FieldHoldings::Additions {
 public:
  static const std::vector<int32_t>& of(const Ranks& ranks) {
    static const std::vector<int32_t> none;
    return ranks == nullptr ? none : *ranks;
  }
  void add(int32_t rank, Ranks* ranks) {
    if (last_ != nullptr && rank == last_->first.second && *ranks == last_->first.first) {
      *ranks = last_->second;
      return;
    }
    const auto [known, fresh] = made_.try_emplace({*ranks, rank}, *ranks);
    if (fresh && !std::binary_search(of(*ranks).begin(), of(*ranks).end(), rank)) {
      std::vector<int32_t> more = of(*ranks);
      more.insert(std::lower_bound(more.begin(), more.end(), rank), rank);
      known->second = std::make_shared<const std::vector<int32_t>>(std::move(more));
    }
    *ranks = known->second;
    last_ = &*known;
  }

 private:
  using Made = std::map<std::pair<Ranks, int32_t>, Ranks>;
  Made made_;
  const Made::value_type* last_ = nullptr;  // what was asked for before: rows often follow alike
};

void FieldHoldings::note(const std::string& field, const std::vector<SampleRows>& written,
                         size_t rows) {
  for (RanksByRow* ranks : {&written_[field], &held_[field]}) {
    ranks->resize(rows);
    Additions additions;
    for (size_t rank = 0; rank < written.size(); ++rank)
      for (const int32_t row : written[rank])
        additions.add(static_cast<int32_t>(rank), &(*ranks)[row]);
  }
}

void FieldHoldings::note_everywhere(const std::string& field, size_t rows) {
  std::vector<int32_t> all(ranks_);
  std::iota(all.begin(), all.end(), 0);
  const Ranks everywhere = std::make_shared<const std::vector<int32_t>>(std::move(all));
  for (RanksByRow* ranks : {&written_[field], &held_[field]}) ranks->assign(rows, everywhere);
}

std::vector<int32_t> FieldHoldings::speakers(const std::string& field) const {
  std::vector<int64_t> said(ranks_, 0);
  std::vector<int32_t> out;
  for (const Ranks& ranks : held_.at(field)) {
    const std::vector<int32_t>& holders = Additions::of(ranks);
    const auto least = std::min_element(holders.begin(), holders.end(),
                                        [&](int32_t a, int32_t b) { return said[a] < said[b]; });
    out.push_back(least == holders.end() ? -1 : *least);
    if (out.back() >= 0) ++said[out.back()];
  }
  return out;
}

void FieldHoldings::retain(const std::vector<bool>& kept) {
  for (auto* fields : {&written_, &held_})
    for (auto& [field, rows] : *fields) {
      size_t left = 0;
      for (size_t row = 0; row < kept.size(); ++row)
        if (kept[row]) std::swap(rows[left++], rows[row]);
      rows.resize(left);
    }
}

void FieldHoldings::append(const FieldHoldings& other, size_t rows) {
  for (auto [own, more] : {std::pair(&written_, &other.written_), std::pair(&held_, &other.held_)})
    for (const auto& [field, ranks] : *more) {
      RanksByRow& by_row = (*own)[field];
      by_row.resize(rows);
      by_row.insert(by_row.end(), ranks.begin(), ranks.end());
    }
}

std::vector<FieldMove> FieldHoldings::bring(const std::vector<MovedField>& fields,
                                            const std::vector<SampleRows>& needed,
                                            const std::vector<DeviceId>& members) {
  std::vector<bool> takes_part(ranks_, members.empty());
  for (const DeviceId member : members) takes_part[member.value] = true;
  std::vector<int64_t> sent(ranks_, 0);
  MovesByRanks moves;
  for (size_t to = 0; to < needed.size(); ++to) {
    const auto rank = static_cast<int32_t>(to);
    // Of the rows that the same ranks wrote; most of these have one account of them.
    std::map<std::vector<int32_t>, int32_t> sender_of;
    std::unordered_map<const void*, int32_t> sender_by_account;
    const auto sender = [&](const Ranks& account) {
      const auto [known, unseen] = sender_by_account.try_emplace(account.get(), -1);
      if (!unseen) return known->second;
      const auto [found, fresh] = sender_of.try_emplace(Additions::of(account), -1);
      if (fresh)
        for (const int32_t writer : Additions::of(account))
          if (takes_part[writer] && (found->second < 0 || sent[writer] < sent[found->second]))
            found->second = writer;
      return known->second = found->second;
    };
    std::pair<int32_t, std::vector<SampleRows>*> last = {-1, nullptr};  // sender and its rows
    for (size_t field = 0; field < fields.size(); ++field) {
      const RanksByRow& writers = written_.at(fields[field].name);
      const RanksByRow& held = held_.at(fields[field].name);
      for (const int32_t row : needed[to]) {
        const std::vector<int32_t>& holders = Additions::of(held[row]);
        if (std::binary_search(holders.begin(), holders.end(), rank)) continue;
        const int32_t from = sender(writers[row]);
        if (from < 0) continue;
        sent[from] += fields[field].numbers[row];
        if (from != last.first) {
          last = {from, &moves[{from, rank}]};
          last.second->resize(fields.size());
        }
        (*last.second)[field].push_back(row);
      }
    }
  }
  return made(fields, std::move(moves));
}

std::vector<FieldMove> FieldHoldings::made(const std::vector<MovedField>& fields,
                                           MovesByRanks moves) {
  std::vector<FieldMove> out;
  out.reserve(moves.size());
  Additions additions;
  std::vector<RanksByRow*> held;
  for (const MovedField& field : fields) held.push_back(&held_.at(field.name));
  for (auto& [ranks, rows] : moves) {
    for (size_t field = 0; field < fields.size(); ++field)
      for (const int32_t row : rows[field]) additions.add(ranks.second, &(*held[field])[row]);
    out.push_back({ranks.first, ranks.second, std::move(rows)});
  }
  return out;
}

}  // namespace braid::inline program
