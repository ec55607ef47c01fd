#include "samples/field_exchange.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/text.h"
#include "program/listed_messages.h"

namespace braid::inline samples {
namespace {

constexpr int32_t kAtOnce = -1;  // in no exchange of the program

std::vector<int64_t> counts_in(const SampleStore& store, const Field& field) {
  return field.sizes.empty() ? std::vector<int64_t>(store.size(), 1) : store.counts(field.sizes);
}

int64_t sum_of(const std::vector<int64_t>& sizes, const Rows& rows) {
  int64_t sum = 0;
  for (const size_t row : rows) sum += sizes[row];
  return sum;
}

// For messages.
std::string names(const std::vector<Field>& fields) {
  std::vector<std::string> out;
  for (const Field& field : fields) out.push_back(field.name);
  return join(out, ", ");
}

int64_t most_rows(const std::vector<Rows>& by_rank) {
  size_t most = 0;
  for (const Rows& rows : by_rank) most = std::max(most, rows.size());
  return static_cast<int64_t>(most);
}

}  // namespace

FieldExchange::FieldExchange(Communicator* everyone, SampleStore& store, FieldContents* contents)
    : everyone_(everyone),
      store_(store),
      stored_(store),
      contents_(contents == nullptr ? stored_ : *contents),
      holdings_(static_cast<size_t>(ranks())) {}

void FieldExchange::begin() {
  holdings_.clear();
  abandon();
}

void FieldExchange::abandon() {
  arriving_.clear();
  sending_.clear();
}

void FieldExchange::note_everywhere(const std::string& field) {
  const Rows all = store_.all_rows();
  holdings_.note(field, std::vector<SampleRows>(ranks(), SampleRows(all.begin(), all.end())),
                 store_.size());
}

std::vector<Field> FieldExchange::written(const std::vector<Field>& fields) const {
  std::vector<Field> out;
  for (const Field& field : fields)
    if (holdings_.knows(field.name)) out.push_back(field);
  return out;
}

std::vector<MovedField> FieldExchange::known(const std::vector<Field>& fields) const {
  std::vector<MovedField> out;
  for (const Field& field : written(fields)) out.push_back({field.name, counts_in(store_, field)});
  return out;
}

at::Tensor StoredFields::packed(const Field& field, const Rows& rows) {
  if (field.type != FieldType::kTokens)
    return store_.reals(field.name, rows)->contiguous().view(at::kInt);
  const TokenLists& lists = **store_.tokens(field.name);
  std::vector<int32_t> ids;
  for (const size_t row : rows) ids.insert(ids.end(), lists[row].begin(), lists[row].end());
  return at::tensor(ids, at::kInt);
}

Status StoredFields::put(const Field& field, const Rows& rows, const at::Tensor& arrived) {
  if (field.type != FieldType::kTokens)
    return store_.put_reals(field.name, rows, arrived.view(at::kFloat));
  TokenLists lists;
  const int32_t* id = arrived.const_data_ptr<int32_t>();
  const std::vector<int64_t> counts = counts_in(store_, field);
  for (const size_t row : rows) {
    lists.emplace_back(id, id + counts[row]);
    id += counts[row];
  }
  return store_.put_tokens(field.name, rows, std::move(lists));
}

std::vector<FieldMove> FieldExchange::moves(const std::vector<Field>& fields,
                                            const std::vector<SampleRows>& needed,
                                            const std::vector<DeviceId>& members) {
  return holdings_.bring(known(fields), needed, members);
}

void FieldExchange::start(int32_t exchange, const std::vector<Field>& fields,
                          const std::vector<FieldMove>& moves) {
  const std::vector<Field> moved = written(fields);
  for (const FieldMove& move : moves) {
    if (move.from == rank()) send(moved, move);
    if (move.to == rank()) receive(exchange, moved, move);
  }
}

void FieldExchange::send(const std::vector<Field>& fields, const FieldMove& move) {
  std::vector<at::Tensor> values;
  for (size_t i = 0; i < fields.size(); ++i) {
    const Rows rows(move.rows[i].begin(), move.rows[i].end());
    if (sum_of(counts_in(store_, fields[i]), rows) > 0)
      values.push_back(contents_.packed(fields[i], rows));
  }
  if (values.empty()) return;
  const at::Tensor message = values.size() == 1 ? values.front() : at::cat(values);
  sending_.emplace_back(message, everyone_->send(message, move.to, kFieldChannel, names(fields)));
}

void FieldExchange::receive(int32_t exchange, const std::vector<Field>& fields,
                            const FieldMove& move) {
  std::vector<int64_t> sizes;
  Arrival arrival;
  arrival.exchange = exchange;
  for (size_t i = 0; i < fields.size(); ++i) {
    const Rows rows(move.rows[i].begin(), move.rows[i].end());
    if (rows.empty()) continue;
    const int64_t numbers = sum_of(counts_in(store_, fields[i]), rows);
    sizes.push_back(numbers > 0 ? contents_.pieces(numbers) : 0);
    arrival.parts.push_back({fields[i], rows, {}});
  }
  const int64_t all = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  const at::Tensor message = at::empty({all}, at::kInt);
  int64_t begin = 0;
  for (size_t i = 0; i < sizes.size(); begin += sizes[i++])
    arrival.parts[i].values = message.narrow(0, begin, sizes[i]);
  if (all > 0)
    arrival.pending = everyone_->receive(message, move.from, kFieldChannel, names(fields));
  arriving_.push_back(std::move(arrival));
}

std::list<FieldExchange::Arrival> FieldExchange::take_arrivals(int32_t exchange) {
  std::list<Arrival> out;
  for (auto at = arriving_.begin(); at != arriving_.end();) {
    const auto each = at++;
    if (each->exchange == exchange) out.splice(out.end(), arriving_, each);
  }
  return out;
}

Status FieldExchange::arrive(int32_t exchange) {
  for (Arrival& each : take_arrivals(exchange)) {
    BRAID_TRY(each.pending.wait());
    for (const Part& part : each.parts)
      BRAID_TRY(contents_.put(part.field, part.rows, part.values));
  }
  return ok_status();
}

Status FieldExchange::end_step() {
  while (!arriving_.empty()) BRAID_TRY(arrive(arriving_.front().exchange));
  for (auto& [values, pending] : sending_) BRAID_TRY(pending.wait());
  sending_.clear();
  return ok_status();
}

Status FieldExchange::bring_to_first(const std::vector<Field>& fields) {
  if (ranks() == 1) return ok_status();
  std::vector<SampleRows> needed(ranks());
  const Rows all = store_.all_rows();
  needed.front().assign(all.begin(), all.end());
  start(kAtOnce, fields, moves(fields, needed, {}));
  return arrive(kAtOnce);
}

std::vector<Rows> FieldExchange::spoken(const std::vector<Field>& fields) const {
  std::vector<Rows> out(ranks());
  if (fields.empty() || ranks() == 1) return out;
  const std::vector<int32_t> speakers = holdings_.speakers(fields.front().name);
  for (size_t row = 0; row < speakers.size(); ++row)
    if (speakers[row] >= 0) out[speakers[row]].push_back(row);
  return out;
}

int64_t FieldExchange::shared_bytes(const std::vector<Field>& fields) const {
  const std::vector<Field> shared = written(fields);
  return ranks() * static_cast<int64_t>(shared.size()) * most_rows(spoken(shared)) * kNumberBytes;
}

// [field, place]: the words of other places are zeros.
at::Tensor FieldExchange::own_words(const std::vector<Field>& fields, const Rows& rows,
                                    int64_t room) {
  const at::Tensor out = at::zeros({static_cast<int64_t>(fields.size()), room}, at::kInt);
  if (rows.empty()) return out;
  for (size_t i = 0; i < fields.size(); ++i) {
    const at::Tensor words = out[static_cast<int64_t>(i)].narrow(0, 0, rows.size());
    if (fields[i].type != FieldType::kCount) {
      words.copy_(contents_.said(fields[i], rows));
      continue;
    }
    const std::vector<int64_t> counts = store_.counts(fields[i].name);
    auto* count = words.mutable_data_ptr<int32_t>();
    for (const size_t row : rows) *count++ = static_cast<int32_t>(counts[row]);
  }
  return out;
}

// `words_RS`: what each rank says of the field, in the order of its rows.
Status FieldExchange::hear(const Field& field, const std::vector<Rows>& spoken,
                           const at::Tensor& words_RS) {
  std::map<size_t, int32_t> heard;
  for (size_t rank = 0; rank < spoken.size(); ++rank) {
    const at::Tensor words = words_RS[static_cast<int64_t>(rank)].contiguous();
    for (size_t i = 0; i < spoken[rank].size(); ++i)
      heard[spoken[rank][i]] = words.const_data_ptr<int32_t>()[i];
  }
  if (field.type == FieldType::kCount) {
    std::vector<int64_t> counts(store_.size(), 0);
    for (const auto& [row, word] : heard) counts[row] = word;
    store_.set_counts(field.name, std::move(counts));
    return ok_status();
  }
  Rows rows;
  std::vector<int32_t> words;
  for (const auto& [row, word] : heard) rows.push_back(row), words.push_back(word);
  return contents_.hear(field, rows, at::tensor(words, at::kInt));
}

Status FieldExchange::share(const std::vector<Field>& fields) {
  const std::vector<Field> shared = written(fields);
  const std::vector<Rows> rows = spoken(shared);
  const int64_t room = most_rows(rows);
  if (room == 0) return ok_status();
  const at::Tensor own = own_words(shared, rows[rank()], room);
  const at::Tensor all_RFS = at::empty({ranks(), own.size(0), room}, at::kInt);
  BRAID_TRY(everyone_->all_gather(all_RFS, own.unsqueeze(0), names(shared)).wait());
  for (size_t i = 0; i < shared.size(); ++i) {
    BRAID_TRY(hear(shared[i], rows, all_RFS.select(1, static_cast<int64_t>(i))));
    note_everywhere(shared[i].name);
  }
  return ok_status();
}

Result<std::vector<std::string>> FieldExchange::gather_text(const std::string& mine,
                                                            const std::string& what) {
  if (ranks() == 1) return std::vector<std::string>{mine};
  const at::Tensor size = at::tensor({static_cast<int64_t>(mine.size())}, at::kLong);
  const at::Tensor sizes = at::empty({ranks()}, at::kLong);
  BRAID_TRY(everyone_->all_gather(sizes, size, cat(what, " (sizes)")).wait());
  const int64_t longest = std::max<int64_t>(1, sizes.max().item<int64_t>());
  const int64_t total = std::max<int64_t>(1, sizes.sum().item<int64_t>());
  const at::Tensor ends = sizes.cumsum(0);
  // In a ring a sum passes each byte twice; else the longest text is the room of every rank's.
  const bool sums = 2 * total < ranks() * longest;
  const auto place = [&](int64_t of) {
    return sums ? ends[of].item<int64_t>() - sizes[of].item<int64_t>() : of * longest;
  };
  const at::Tensor all = at::zeros({sums ? total : ranks() * longest}, at::kByte);
  const at::Tensor own = sums ? all : at::zeros({longest}, at::kByte);
  char* const begin = static_cast<char*>(own.data_ptr()) + (sums ? place(rank()) : 0);
  std::memcpy(begin, mine.data(), mine.size());
  BRAID_TRY((sums ? everyone_->all_reduce(all, Reduce::kSum, what)
                  : everyone_->all_gather(all, own, what))
                .wait());
  const auto* const text = static_cast<const char*>(all.const_data_ptr());
  std::vector<std::string> out;
  for (int64_t i = 0; i < ranks(); ++i) out.emplace_back(text + place(i), sizes[i].item<int64_t>());
  return out;
}

}  // namespace braid::inline samples
