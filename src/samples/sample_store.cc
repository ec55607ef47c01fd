#include "samples/sample_store.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <iterator>
#include <numeric>
#include <set>
#include <utility>

#include "base/text.h"
#include "device/device_copy.h"
#include "program/scored_prefixes.h"

namespace braid::inline samples {
namespace {

using Drawn = std::vector<std::pair<int64_t, int64_t>>;  // version, tokens

constexpr const char* kGroups = "groups";
constexpr const char* kResponses = "response_ids";

// The kept ones of one value per row.
template <typename T>
std::vector<T> kept_of(std::vector<T>& values, const std::vector<bool>& kept) {
  std::vector<T> out;
  for (size_t row = 0; row < kept.size(); ++row)
    if (kept[row]) out.push_back(std::move(values[row]));
  return out;
}

// The values of `more`, by row, behind those of `rows` rows.
template <typename T>
void add_rows(std::vector<T> more, size_t rows, std::vector<T>* values) {
  values->resize(rows);
  values->insert(values->end(), std::make_move_iterator(more.begin()),
                 std::make_move_iterator(more.end()));
}

}  // namespace

Json drawn_json(const StoredSample& sample) {
  Json out = Json::array();
  for (const auto& [version, tokens] : sample.drawn) out.push_back({version, tokens});
  return out;
}

Json sample_json(const StoredSample& sample) {
  Json out = {{"id", sample.id.value}, {"group", sample.group.value}, {"prompt", sample.prompt},
              {"extra", sample.extra}, {"messages", sample.messages}, {"rewards", sample.rewards}};
  if (!sample.drawn.empty()) out["drawn"] = drawn_json(sample);
  return out;
}

Result<StoredSample> parse_sample(const Json& json) {
  StoredSample out;
  BRAID_ASSIGN(out.id.value, json_field<int64_t>(json, "id"));
  BRAID_ASSIGN(out.group.value, json_field<int64_t>(json, "group"));
  BRAID_ASSIGN(out.prompt, json_field<std::string>(json, "prompt"));
  BRAID_ASSIGN(out.extra, json_field<Json>(json, "extra"));
  out.messages = json.value("messages", Json());
  out.rewards = json.value("rewards", Json());
  BRAID_ASSIGN(const Drawn drawn, json_field_or<Drawn>(json, "drawn", {}));
  out.drawn = {drawn.begin(), drawn.end()};
  return out;
}

SampleStore::SampleStore(const Graph& graph) {
  for (const Call& call : graph.calls)
    for (const Field& field : call.writes) fields_[field.name] = field;
  if (generates(graph)) fields_[kBegunIds] = begun_field();
}

void SampleStore::begin(std::vector<StoredSample> samples) {
  samples_ = std::move(samples);
  tokens_.clear();
  reals_.clear();
  counts_.clear();
}

Rows SampleStore::all_rows() const {
  Rows rows(samples_.size());
  std::iota(rows.begin(), rows.end(), size_t{0});
  return rows;
}

void SampleStore::put_texts(size_t row, std::string prompt, Json extra, Json messages) {
  StoredSample& sample = samples_[row];
  sample.prompt = std::move(prompt);
  sample.extra = std::move(extra);
  sample.messages = std::move(messages);
  sample.here = true;
}

Result<const Field*> SampleStore::declared(const std::string& field) const {
  const auto found = fields_.find(field);
  if (found == fields_.end())
    return invalid_input(cat("field '", field, "' is not declared by the graph"));
  return &found->second;
}

Status SampleStore::put_tokens(const std::string& field, const Rows& rows, TokenLists values) {
  BRAID_ASSIGN(const Field* spec, declared(field));
  if (spec->type != FieldType::kTokens)
    return invalid_input(cat("field '", field, "' does not hold tokens"));
  BRAID_CHECK(values.size() == rows.size(), "one token list per row");
  TokenLists& lists = tokens_[field];
  lists.resize(samples_.size());
  const auto said = counts_.find(spec->sizes);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (said != counts_.end()) said->second[rows[i]] = static_cast<int64_t>(values[i].size());
    lists[rows[i]] = std::move(values[i]);
  }
  return ok_status();
}

Status SampleStore::put_reals(const std::string& field, const Rows& rows,
                              const at::Tensor& packed) {
  BRAID_ASSIGN(const Field* spec, declared(field));
  if (spec->type == FieldType::kTokens || spec->type == FieldType::kCount)
    return invalid_input(
        cat("field '", field, "' holds ", spec->type == FieldType::kTokens ? "tokens" : "counts"));
  const bool per_sample = spec->shape == FieldShape::kPerSample;
  const auto lens = per_sample ? std::vector<int64_t>() : counts(spec->sizes);
  const at::Tensor values = to_host(packed.detach()).to(at::kFloat);
  std::vector<at::Tensor>& cells = reals_[field];
  cells.resize(samples_.size());
  int64_t begin = 0;
  for (const size_t row : rows) {
    const int64_t count = per_sample ? 1 : lens[row];
    BRAID_CHECK(begin + count <= values.numel(), "field " + field + " has too few values");
    cells[row] = values.narrow(0, begin, count);
    begin += count;
  }
  BRAID_CHECK(begin == values.numel(), "field " + field + " has too many values");
  return ok_status();
}

Result<const TokenLists*> SampleStore::tokens(const std::string& field) const {
  BRAID_TRY(declared(field).status());
  const auto found = tokens_.find(field);
  if (found == tokens_.end())
    return invalid_input(cat("field '", field, "' is read before it is produced"));
  return &found->second;
}

Result<at::Tensor> SampleStore::reals(const std::string& field, const Rows& rows) const {
  BRAID_TRY(declared(field).status());
  const auto found = reals_.find(field);
  if (found == reals_.end())
    return invalid_input(cat("field '", field, "' is read before it is produced"));
  if (rows.empty()) return at::empty({0});
  std::vector<at::Tensor> cells;
  for (const size_t row : rows) {
    cells.push_back(found->second[row]);
    if (!cells.back().defined())
      return invalid_input(cat("field '", field, "' of sample ", samples_[row].id,
                               " is read where it was not produced"));
  }
  return at::cat(cells);
}

std::vector<std::string> SampleStore::token_fields() const {
  std::vector<std::string> out;
  for (const auto& item : tokens_) out.push_back(item.first);
  return out;
}

std::vector<std::string> SampleStore::real_fields() const {
  std::vector<std::string> out;
  for (const auto& item : reals_) out.push_back(item.first);
  return out;
}

Rows SampleStore::rows_with(const std::string& field) const {
  Rows out;
  const auto found = reals_.find(field);
  for (size_t row = 0; found != reals_.end() && row < found->second.size(); ++row)
    if (found->second[row].defined()) out.push_back(row);
  return out;
}

std::vector<int64_t> SampleStore::counts(const std::string& field) const {
  if (const auto said = counts_.find(field); said != counts_.end()) return said->second;
  std::vector<int64_t> out(samples_.size(), 0);
  for (size_t row = 0; field == kGroups && row < out.size(); ++row)
    out[row] = samples_[row].group.value;
  for (const auto& [name, lists] : tokens_) {
    if (fields_.at(name).sizes != field) continue;
    for (size_t row = 0; row < out.size(); ++row)
      out[row] = static_cast<int64_t>(lists[row].size());
  }
  return out;
}

std::vector<int64_t> SampleStore::prompt_lens() const {
  if (const auto said = counts_.find(kPromptLens); said != counts_.end()) return said->second;
  std::vector<int64_t> out(samples_.size(), 0);
  const auto prompts = tokens_.find("prompt_ids");
  for (size_t row = 0; prompts != tokens_.end() && row < out.size(); ++row)
    out[row] = static_cast<int64_t>(prompts->second[row].size());
  return out;
}

std::string SampleStore::first_of(const Call& call, FieldType type, FieldShape shape,
                                  const char* otherwise) const {
  const auto matches = [&](const Field& field) {
    return field.type == type && field.shape == shape;
  };
  for (const std::string& name : call.reads)
    if (const auto found = fields_.find(name); found != fields_.end() && matches(found->second))
      return name;
  for (const Field& field : call.writes)
    if (matches(field)) return field.name;
  return otherwise;
}

std::string SampleStore::responses_of(const Call& call) const {
  return first_of(call, FieldType::kTokens, FieldShape::kPerToken, kResponses);
}

std::string SampleStore::cut_flag_of(const Call& call) const {
  return first_of(call, FieldType::kFlag, FieldShape::kPerSample, "truncated");
}

Result<AlgoBatch> SampleStore::gather(const std::vector<std::string>& fields, const Rows& rows,
                                      at::Device device) const {
  AlgoBatch batch;
  std::string sizes = "response_lens";
  for (const std::string& name : fields) {
    BRAID_ASSIGN(const Field* field, declared(name));
    if (field->shape != FieldShape::kPerToken) continue;
    sizes = field->sizes;
    break;
  }
  const auto lens = counts(sizes);
  for (const size_t row : rows) {
    batch.response_lens.push_back(lens[row]);
    batch.groups.push_back(samples_[row].group.value);
  }
  for (const std::string& name : fields) {
    BRAID_ASSIGN(const Field* field, declared(name));
    if (field->type == FieldType::kTokens || field->type == FieldType::kCount) continue;
    BRAID_ASSIGN(const at::Tensor values, reals(name, rows));
    batch.fields[name] = to_device(values, device);
  }
  return batch;
}

int64_t SampleStore::bytes() const {
  size_t out = 0;
  for (const auto& [field, lists] : tokens_)
    for (const std::vector<int32_t>& list : lists) out += list.size() * sizeof(int32_t);
  for (const auto& [field, rows] : reals_)
    for (const at::Tensor& row : rows)
      if (row.defined()) out += row.nbytes();
  return static_cast<int64_t>(out);
}

void SampleStore::set_rewards(const Rows& rows,
                              const std::map<std::string, std::vector<double>>& by_name) {
  for (size_t i = 0; i < rows.size(); ++i) {
    Json rewards = Json::object();
    for (const auto& [name, values] : by_name) rewards[name] = number_or_null(values[i]);
    put_rewards(rows[i], std::move(rewards));
  }
}

void SampleStore::retain(const std::vector<bool>& kept) {
  samples_ = kept_of(samples_, kept);
  for (auto& [name, lists] : tokens_) lists = kept_of(lists, kept);
  for (auto& [name, cells] : reals_) cells = kept_of(cells, kept);
  for (auto& [name, values] : counts_) values = kept_of(values, kept);
}

void SampleStore::append(SampleStore other) {
  const size_t rows = samples_.size(), all = rows + other.samples_.size();
  // Where they were said of one of both, they follow from the tokens of the other.
  std::set<std::string> said;
  for (const auto* each : {&counts_, &other.counts_})
    for (const auto& entry : *each) said.insert(entry.first);
  for (const std::string& name : said) {
    std::vector<int64_t> own = counts(name);
    add_rows(other.counts(name), rows, &own);
    counts_[name] = std::move(own);
  }
  add_rows(std::move(other.samples_), rows, &samples_);
  for (auto& [name, lists] : other.tokens_) add_rows(std::move(lists), rows, &tokens_[name]);
  for (auto& [name, cells] : other.reals_) add_rows(std::move(cells), rows, &reals_[name]);
  for (auto& [name, lists] : tokens_) lists.resize(all);
  for (auto& [name, cells] : reals_) cells.resize(all);
}

}  // namespace braid::inline samples
