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

#include "base/text.h"

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

std::vector<int64_t> FieldExchange::value_counts(const Field& field) const {
  return counts_in(store_, field);
}

at::Tensor StoredFields::packed(const Field& field, const Rows& rows) {
  if (field.type != FieldType::kTokens) return store_.reals(field.name, rows)->contiguous();
  const TokenLists& lists = **store_.tokens(field.name);
  std::vector<int32_t> ids;
  for (const size_t row : rows) ids.insert(ids.end(), lists[row].begin(), lists[row].end());
  return at::tensor(ids, at::kInt);
}

at::Tensor StoredFields::room(const Field& field, int64_t numbers) {
  return at::empty({numbers}, field.type == FieldType::kTokens ? at::kInt : at::kFloat);
}

Status StoredFields::put(const Field& field, const Rows& rows, const at::Tensor& arrived) {
  if (field.type != FieldType::kTokens) return store_.put_reals(field.name, rows, arrived);
  TokenLists lists;
  const int32_t* id = arrived.const_data_ptr<int32_t>();
  const std::vector<int64_t> counts = counts_in(store_, field);
  for (const size_t row : rows) {
    lists.emplace_back(id, id + counts[row]);
    id += counts[row];
  }
  return store_.put_tokens(field.name, rows, std::move(lists));
}

std::vector<FieldMove> FieldExchange::moves(const Field& field,
                                            const std::vector<SampleRows>& needed,
                                            const std::vector<DeviceId>& members) {
  if (!holdings_.knows(field.name)) return {};
  return holdings_.bring(field.name, needed, value_counts(field), members);
}

void FieldExchange::start(int32_t exchange, const Field& field,
                          const std::vector<FieldMove>& moves) {
  const std::vector<int64_t> counts = value_counts(field);
  for (const FieldMove& move : moves) {
    if (move.from != rank() && move.to != rank()) continue;
    const Rows rows(move.rows.begin(), move.rows.end());
    const int64_t numbers = sum_of(counts, rows);
    if (move.from == rank() && numbers > 0) {
      const at::Tensor values = contents_.packed(field, rows);
      sending_.emplace_back(values, everyone_->send(values, move.to, kFieldChannel, field.name));
    }
    if (move.to != rank()) continue;
    const at::Tensor values = contents_.room(field, numbers);
    Pending pending;
    if (numbers > 0) pending = everyone_->receive(values, move.from, kFieldChannel, field.name);
    arriving_.push_back({exchange, field, rows, values, std::move(pending)});
  }
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
    BRAID_TRY(contents_.put(each.field, each.rows, each.values));
  }
  return ok_status();
}

Status FieldExchange::end_step() {
  while (!arriving_.empty()) BRAID_TRY(arrive(arriving_.front().exchange));
  for (auto& [values, pending] : sending_) BRAID_TRY(pending.wait());
  sending_.clear();
  return ok_status();
}

Status FieldExchange::share(const Field& field) {
  if (ranks() == 1 || !holdings_.knows(field.name)) return ok_status();
  const Rows all = store_.all_rows();
  start(kAtOnce, field,
        moves(field, std::vector<SampleRows>(ranks(), SampleRows(all.begin(), all.end())), {}));
  return arrive(kAtOnce);
}

Status FieldExchange::bring_to_first(const Field& field) {
  if (ranks() == 1 || !holdings_.knows(field.name)) return ok_status();
  std::vector<SampleRows> needed(ranks());
  const Rows all = store_.all_rows();
  needed.front().assign(all.begin(), all.end());
  start(kAtOnce, field, moves(field, needed, {}));
  return arrive(kAtOnce);
}

// Every sample has one first holder, so that a sum is its count.
Status FieldExchange::share_counts(const Field& field) {
  if (ranks() == 1 || !holdings_.knows(field.name)) return ok_status();
  std::vector<int64_t> counts = store_.counts(field.name);
  for (size_t row = 0; row < counts.size(); ++row)
    if (holdings_.first_holder(field.name, static_cast<int32_t>(row)) != rank()) counts[row] = 0;
  const at::Tensor all = at::tensor(counts, at::kLong);
  BRAID_TRY(everyone_->all_reduce(all, Reduce::kSum, field.name).wait());
  const int64_t* begin = all.const_data_ptr<int64_t>();
  store_.set_counts(field.name, {begin, begin + all.numel()});
  note_everywhere(field.name);
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
