#include "runtime/sample_store.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <numeric>

#include "base/text.h"

namespace braid {
namespace {
constexpr const char* kResponse = "response_ids";
}

SampleStore::SampleStore(const Graph& graph) {
  for (const Call& call : graph.calls)
    for (const Field& field : call.writes) fields_[field.name] = field;
}

void SampleStore::begin(std::vector<StoredSample> samples) {
  samples_ = std::move(samples);
  tokens_.clear();
  reals_.clear();
}

Result<const Field*> SampleStore::declared(const std::string& field) const {
  const auto found = fields_.find(field);
  if (found == fields_.end())
    return invalid_input(cat("field '", field, "' is not declared by the graph"));
  return &found->second;
}

Status SampleStore::put_tokens(const std::string& field, TokenLists values) {
  BRAID_ASSIGN(const Field* spec, declared(field));
  if (spec->type != FieldType::kTokens)
    return invalid_input(cat("field '", field, "' does not hold tokens"));
  BRAID_CHECK(values.size() == samples_.size(), "one token list per sample");
  tokens_[field] = std::move(values);
  return ok_status();
}

Status SampleStore::put_reals(const std::string& field, at::Tensor packed) {
  BRAID_ASSIGN(const Field* spec, declared(field));
  if (spec->type == FieldType::kTokens)
    return invalid_input(cat("field '", field, "' holds tokens"));
  const auto lens = response_lens();
  const int64_t expected = spec->shape == FieldShape::kPerSample
                               ? static_cast<int64_t>(samples_.size())
                               : std::accumulate(lens.begin(), lens.end(), int64_t{0});
  BRAID_CHECK(packed.numel() == expected, "field " + field + " has the wrong number of values");
  reals_[field] = packed.detach().to(at::kFloat);
  return ok_status();
}

Result<const TokenLists*> SampleStore::tokens(const std::string& field) const {
  BRAID_TRY(declared(field).status());
  const auto found = tokens_.find(field);
  if (found == tokens_.end())
    return invalid_input(cat("field '", field, "' is read before it is produced"));
  return &found->second;
}

Result<at::Tensor> SampleStore::reals(const std::string& field) const {
  BRAID_TRY(declared(field).status());
  const auto found = reals_.find(field);
  if (found == reals_.end())
    return invalid_input(cat("field '", field, "' is read before it is produced"));
  return found->second;
}

std::vector<int64_t> SampleStore::response_lens() const {
  std::vector<int64_t> lens(samples_.size(), 0);
  const auto found = tokens_.find(kResponse);
  if (found != tokens_.end())
    for (size_t i = 0; i < lens.size(); ++i)
      lens[i] = static_cast<int64_t>(found->second[i].size());
  return lens;
}

at::Tensor SampleStore::select(const Field& field, const at::Tensor& packed,
                               const std::vector<size_t>& rows) const {
  std::vector<int64_t> index;
  if (field.shape == FieldShape::kPerSample) {
    index.assign(rows.begin(), rows.end());
  } else {
    const auto lens = response_lens();
    std::vector<int64_t> begin(lens.size() + 1, 0);
    std::partial_sum(lens.begin(), lens.end(), begin.begin() + 1);
    for (const size_t row : rows)
      for (int64_t i = begin[row]; i < begin[row + 1]; ++i) index.push_back(i);
  }
  return at::index_select(packed, 0, at::tensor(index, at::kLong).to(packed.device()));
}

Result<AlgoBatch> SampleStore::gather(const std::vector<std::string>& fields,
                                      const std::vector<size_t>& rows) const {
  AlgoBatch batch;
  const auto lens = response_lens();
  for (const size_t row : rows) {
    batch.response_lens.push_back(lens[row]);
    batch.groups.push_back(samples_[row].group.value);
  }
  for (const std::string& name : fields) {
    BRAID_ASSIGN(const Field* field, declared(name));
    if (field->type == FieldType::kTokens) continue;
    BRAID_ASSIGN(const at::Tensor packed, reals(name));
    batch.fields[name] = select(*field, packed, rows);
  }
  return batch;
}

void SampleStore::retain(const std::vector<bool>& kept) {
  std::vector<size_t> rows;
  for (size_t i = 0; i < kept.size(); ++i)
    if (kept[i]) rows.push_back(i);
  if (rows.size() == kept.size()) return;
  for (auto& [name, packed] : reals_) packed = select(fields_.at(name), packed, rows);
  std::vector<StoredSample> samples;
  for (const size_t row : rows) samples.push_back(std::move(samples_[row]));
  for (auto& [name, lists] : tokens_) {
    TokenLists shorter;
    for (const size_t row : rows) shorter.push_back(std::move(lists[row]));
    lists = std::move(shorter);
  }
  samples_ = std::move(samples);
}

}  // namespace braid
