#include "samples/field_exchange.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
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
  holdings_.note_everywhere(field, store_.size());
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

Status FieldExchange::bring(const std::vector<Field>& fields,
                            const std::vector<SampleRows>& needed) {
  if (ranks() == 1) return ok_status();
  start(kAtOnce, fields, moves(fields, needed, {}));
  return arrive(kAtOnce);
}

Status FieldExchange::bring_to_first(const std::vector<Field>& fields) {
  std::vector<SampleRows> needed(ranks());
  const Rows all = store_.all_rows();
  needed.front().assign(all.begin(), all.end());
  return bring(fields, needed);
}

std::vector<Rows> FieldExchange::said_by_rank(const std::string& field) const {
  std::vector<Rows> out(ranks());
  const std::vector<int32_t> speakers = holdings_.speakers(field);
  for (size_t row = 0; row < speakers.size(); ++row)
    if (speakers[row] >= 0) out[speakers[row]].push_back(row);
  return out;
}

std::vector<Rows> FieldExchange::spoken(const std::vector<Field>& fields) const {
  if (fields.empty() || ranks() == 1) return std::vector<Rows>(ranks());
  return said_by_rank(fields.front().name);
}

GatheredPieces::GatheredPieces(std::vector<int64_t> numbers) : sizes(std::move(numbers)) {
  const auto ranks = std::ssize(sizes);
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  for (const int64_t size : sizes) longest = std::max(longest, size);
  sums = sums_pieces(total, longest, ranks);
  all = sums ? total : ranks * longest;
  for (int64_t rank = 0, before = 0; rank < ranks; before += sizes[rank++])
    begins.push_back(sums ? before : rank * longest);
}

GatheredPieces FieldExchange::said_in(const std::vector<Rows>& spoken, size_t fields,
                                      int64_t beside) const {
  std::vector<int64_t> sizes;
  for (const Rows& rows : spoken)
    sizes.push_back(beside + static_cast<int64_t>(fields * rows.size()));
  return GatheredPieces(std::move(sizes));
}

TransferCounts FieldExchange::listed(const GatheredPieces& pieces, int64_t number_bytes) const {
  if (pieces.all == 0 || ranks() == 1) return {};
  const Transfer transfer = pieces.sums ? Transfer::kAllReduce : Transfer::kAllGather;
  return {{{transfer, "everyone", -1, -1, pieces.all * number_bytes}, 1}};
}

Result<std::vector<at::Tensor>> FieldExchange::gather(const at::Tensor& mine,
                                                      const GatheredPieces& pieces,
                                                      const std::string& what) {
  const at::Tensor all = at::zeros({pieces.all}, mine.options());
  const int64_t size = pieces.sizes[rank()];
  const at::Tensor room = pieces.sums ? all : at::zeros({pieces.longest}, mine.options());
  room.narrow(0, pieces.sums ? pieces.begins[rank()] : 0, size).copy_(mine);
  if (pieces.all > 0)
    BRAID_TRY((pieces.sums ? everyone_->all_reduce(all, Reduce::kSum, what)
                           : everyone_->all_gather(all, room, what))
                  .wait());
  std::vector<at::Tensor> out;
  for (int64_t from = 0; from < ranks(); ++from)
    out.push_back(all.narrow(0, pieces.begins[from], pieces.sizes[from]));
  return out;
}

TransferCounts FieldExchange::listed_share(const std::vector<Field>& fields, int64_t beside) const {
  const std::vector<Field> shared = written(fields);
  return listed(said_in(spoken(shared), shared.size(), beside), kNumberBytes);
}

// What the rank says of itself, then field by field: zeros where it has nothing to say.
at::Tensor FieldExchange::own_words(const std::vector<Field>& fields, const Rows& rows,
                                    const SaidBeside& beside) {
  const auto begin = std::ssize(beside.words), each = std::ssize(rows);
  const at::Tensor out = at::zeros({begin + std::ssize(fields) * each}, at::kInt);
  auto* word = out.mutable_data_ptr<int32_t>();
  std::copy(beside.words.begin(), beside.words.end(), word);
  if (rows.empty() || !beside.has_values) return out;
  for (int64_t i = 0; i < std::ssize(fields); ++i) {
    if (fields[i].type != FieldType::kCount) {
      out.narrow(0, begin + i * each, each).copy_(contents_.said(fields[i], rows));
      continue;
    }
    const std::vector<int64_t> counts = store_.counts(fields[i].name);
    int32_t* count = word + begin + i * each;
    for (const size_t row : rows) *count++ = static_cast<int32_t>(counts[row]);
  }
  return out;
}

Status FieldExchange::hear(const Field& field, const std::vector<Rows>& spoken,
                           const std::vector<at::Tensor>& said) {
  std::map<size_t, int32_t> heard;
  for (size_t rank = 0; rank < spoken.size(); ++rank)
    for (size_t i = 0; i < spoken[rank].size(); ++i)
      heard[spoken[rank][i]] = said[rank].const_data_ptr<int32_t>()[i];
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

Result<std::vector<std::vector<int32_t>>> FieldExchange::share(const std::vector<Field>& fields,
                                                               const SaidBeside& beside) {
  const std::vector<Field> shared = written(fields);
  const std::vector<Rows> rows = spoken(shared);
  const auto begin = std::ssize(beside.words);
  const GatheredPieces pieces = said_in(rows, shared.size(), begin);
  std::vector<std::vector<int32_t>> out(ranks());
  if (pieces.all == 0) return out;
  BRAID_ASSIGN(const auto all,
               gather(own_words(shared, rows[rank()], beside), pieces, names(shared)));
  for (int64_t from = 0; from < ranks(); ++from) {
    const auto* const words = all[from].const_data_ptr<int32_t>();
    out[from].assign(words, words + begin);
  }
  for (int64_t i = 0; i < std::ssize(shared); ++i) {
    std::vector<at::Tensor> said;
    for (int64_t from = 0; from < ranks(); ++from) {
      const auto each = std::ssize(rows[from]);
      said.push_back(all[from].narrow(0, begin + i * each, each));
    }
    BRAID_TRY(hear(shared[i], rows, said));
    note_everywhere(shared[i].name);
  }
  return out;
}

TransferCounts FieldExchange::listed_numbers(const std::vector<Rows>& said) const {
  return listed(said_in(said, 1, 0), kNumberBytes);
}

Result<std::map<size_t, double>> FieldExchange::gather_numbers(const std::vector<Rows>& said,
                                                               const std::map<size_t, double>& mine,
                                                               const std::string& what) {
  std::vector<float> own;
  for (const size_t row : said[rank()]) own.push_back(static_cast<float>(mine.at(row)));
  // As whole numbers, since a sum of others would lose the sign of 0.
  BRAID_ASSIGN(const auto all,
               gather(at::tensor(own, at::kFloat).view(at::kInt), said_in(said, 1, 0), what));
  std::map<size_t, double> out;
  for (size_t from = 0; from < said.size(); ++from) {
    const at::Tensor numbers = all[from].view(at::kFloat);
    for (size_t i = 0; i < said[from].size(); ++i)
      out[said[from][i]] = numbers.const_data_ptr<float>()[i];
  }
  return out;
}

Result<std::vector<std::vector<int32_t>>> FieldExchange::gather_words(
    const std::vector<int32_t>& mine, const std::vector<int64_t>& sizes, const std::string& what) {
  std::vector<std::vector<int32_t>> out = {mine};
  if (ranks() == 1) return out;
  BRAID_ASSIGN(const auto all, gather(at::tensor(mine, at::kInt), GatheredPieces(sizes), what));
  out.clear();
  for (const at::Tensor& words : all) {
    const auto* const first = words.const_data_ptr<int32_t>();
    out.emplace_back(first, first + words.numel());
  }
  return out;
}

Result<std::vector<std::string>> FieldExchange::gather_text(const std::string& mine,
                                                            const std::string& what) {
  if (ranks() == 1) return std::vector<std::string>{mine};
  const at::Tensor size = at::tensor({static_cast<int64_t>(mine.size())}, at::kLong);
  const at::Tensor sizes = at::empty({ranks()}, at::kLong);
  BRAID_TRY(everyone_->all_gather(sizes, size, cat(what, " (sizes)")).wait());
  const auto* const first = sizes.const_data_ptr<int64_t>();
  const at::Tensor bytes = at::empty({static_cast<int64_t>(mine.size())}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), mine.data(), mine.size());
  BRAID_ASSIGN(const auto all,
               gather(bytes, GatheredPieces(std::vector<int64_t>(first, first + ranks())), what));
  std::vector<std::string> out;
  for (const at::Tensor& text : all)
    out.emplace_back(static_cast<const char*>(text.const_data_ptr()), text.numel());
  return out;
}

}  // namespace braid::inline samples
