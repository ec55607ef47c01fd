#include "runtime/field_exchange.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "base/text.h"

namespace braid {
namespace {

constexpr int32_t kFieldChannel = 0;

int64_t sum_of(const std::vector<int64_t>& sizes, const Rows& rows) {
  int64_t sum = 0;
  for (const size_t row : rows) sum += sizes[row];
  return sum;
}

}  // namespace

std::vector<FieldMove> plan_field_moves(const std::vector<std::vector<bool>>& held,
                                        const std::vector<Rows>& needed,
                                        const std::vector<int64_t>& sizes) {
  const auto ranks = static_cast<int64_t>(held.size());
  std::vector<int64_t> sent(ranks, 0);
  std::map<std::pair<int64_t, int64_t>, Rows> moves;  // by (from, to)
  for (int64_t to = 0; to < ranks; ++to)
    for (const size_t row : needed[to]) {
      if (held[to][row]) continue;
      int64_t from = -1;
      for (int64_t rank = 0; rank < ranks; ++rank)
        if (held[rank][row] && (from < 0 || sent[rank] < sent[from])) from = rank;
      if (from < 0) continue;
      sent[from] += sizes[row];
      moves[{from, to}].push_back(row);
    }
  std::vector<FieldMove> out;
  for (auto& [pair, rows] : moves) out.push_back({pair.first, pair.second, std::move(rows)});
  return out;
}

void FieldExchange::begin() { held_.clear(); }

void FieldExchange::note(const std::string& field, const std::vector<Rows>& written) {
  auto& held = held_[field];
  held.resize(ranks());
  for (int64_t rank = 0; rank < ranks(); ++rank) {
    held[rank].resize(store_.size(), false);
    for (const size_t row : written[rank]) held[rank][row] = true;
  }
}

void FieldExchange::retain(const std::vector<bool>& kept) {
  for (auto& [field, ranks] : held_)
    for (std::vector<bool>& rows : ranks) {
      std::vector<bool> left;
      for (size_t row = 0; row < kept.size(); ++row)
        if (kept[row]) left.push_back(rows[row]);
      rows = std::move(left);
    }
}

std::vector<int64_t> FieldExchange::value_counts(const Field& field) const {
  return field.sizes.empty() ? std::vector<int64_t>(store_.size(), 1) : store_.counts(field.sizes);
}

at::Tensor FieldExchange::packed(const Field& field, const Rows& rows) const {
  if (field.type != FieldType::kTokens) return store_.reals(field.name, rows)->contiguous();
  const TokenLists& lists = **store_.tokens(field.name);
  std::vector<int32_t> ids;
  for (const size_t row : rows) ids.insert(ids.end(), lists[row].begin(), lists[row].end());
  return at::tensor(ids, at::kInt);
}

at::Tensor FieldExchange::room(const Field& field, const Rows& rows) const {
  return at::empty({sum_of(value_counts(field), rows)},
                   field.type == FieldType::kTokens ? at::kInt : at::kFloat);
}

Status FieldExchange::put(const Field& field, const Rows& rows, const at::Tensor& values) {
  if (field.type != FieldType::kTokens) return store_.put_reals(field.name, rows, values);
  TokenLists lists;
  const int32_t* id = values.const_data_ptr<int32_t>();
  const std::vector<int64_t> counts = value_counts(field);
  for (const size_t row : rows) {
    lists.emplace_back(id, id + counts[row]);
    id += counts[row];
  }
  return store_.put_tokens(field.name, rows, std::move(lists));
}

Status FieldExchange::bring(const Field& field, const std::vector<Rows>& needed) {
  const auto known = held_.find(field.name);
  if (ranks() == 1 || known == held_.end()) return ok_status();
  const auto moves = plan_field_moves(known->second, needed, value_counts(field));
  std::vector<Pending> started;
  std::vector<at::Tensor> sent;
  std::vector<std::pair<const FieldMove*, at::Tensor>> received;
  for (const FieldMove& move : moves) {
    if (move.from == rank()) {
      sent.push_back(packed(field, move.rows));
      if (sent.back().numel() > 0)
        started.push_back(everyone_->send(sent.back(), move.to, kFieldChannel, field.name));
    }
    if (move.to == rank()) {
      received.emplace_back(&move, room(field, move.rows));
      if (received.back().second.numel() > 0)
        started.push_back(
            everyone_->receive(received.back().second, move.from, kFieldChannel, field.name));
    }
  }
  for (Pending& pending : started) BRAID_TRY(pending.wait());
  for (const auto& [move, values] : received) BRAID_TRY(put(field, move->rows, values));
  for (const FieldMove& move : moves)
    for (const size_t row : move.rows) known->second[move.to][row] = true;
  return ok_status();
}

Status FieldExchange::share(const Field& field) {
  return bring(field, std::vector<Rows>(ranks(), store_.all_rows()));
}

// Every sample has one first holder, so that a sum is its count.
Status FieldExchange::share_counts(const Field& field) {
  const auto known = held_.find(field.name);
  if (ranks() == 1 || known == held_.end()) return ok_status();
  std::vector<int64_t> counts = store_.counts(field.name);
  for (size_t row = 0; row < counts.size(); ++row) {
    int64_t holder = 0;
    while (holder < ranks() && !known->second[holder][row]) ++holder;
    if (holder != rank()) counts[row] = 0;
  }
  const at::Tensor all = at::tensor(counts, at::kLong);
  BRAID_TRY(everyone_->all_reduce(all, Reduce::kSum, field.name).wait());
  const int64_t* begin = all.const_data_ptr<int64_t>();
  store_.set_counts(field.name, {begin, begin + all.numel()});
  return ok_status();
}

Result<std::vector<std::string>> FieldExchange::gather_text(const std::string& mine,
                                                            const std::string& what) {
  if (ranks() == 1) return std::vector<std::string>{mine};
  const at::Tensor size = at::tensor({static_cast<int64_t>(mine.size())}, at::kLong);
  const at::Tensor sizes = at::empty({ranks()}, at::kLong);
  BRAID_TRY(everyone_->all_gather(sizes, size, cat(what, " (sizes)")).wait());
  const int64_t longest = std::max<int64_t>(1, sizes.max().item<int64_t>());
  const at::Tensor text = at::zeros({longest}, at::kByte);
  std::memcpy(text.data_ptr(), mine.data(), mine.size());
  const at::Tensor all = at::empty({ranks() * longest}, at::kByte);
  BRAID_TRY(everyone_->all_gather(all, text, what).wait());
  std::vector<std::string> out;
  for (int64_t i = 0; i < ranks(); ++i)
    out.emplace_back(static_cast<const char*>(all.const_data_ptr()) + i * longest,
                     sizes[i].item<int64_t>());
  return out;
}

}  // namespace braid
