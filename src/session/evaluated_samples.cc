#include "session/evaluated_samples.h"

#include <ATen/ops/tensor.h>

#include <utility>

namespace braid::inline session {
namespace {

const Field& responses_field() {
  static const Field field{"response_ids", FieldType::kTokens, FieldShape::kPerToken,
                           "response_lens"};
  return field;
}

const Field& cut_field() {
  static const Field field{"truncated", FieldType::kFlag, FieldShape::kPerSample};
  return field;
}

// Also where the graph generates nothing.
Graph with_responses(Graph graph) {
  Call drawn;
  drawn.name = "evaluation";
  drawn.writes = {responses_field(), cut_field()};
  graph.calls.push_back(std::move(drawn));
  return graph;
}

}  // namespace

EvaluatedSamples::EvaluatedSamples(const Graph& graph, Communicator* everyone, int64_t responses,
                                   int64_t copies, std::vector<SampleRows> drawn)
    : store_(with_responses(graph)), exchange_(everyone, store_), drawn_(std::move(drawn)) {
  std::vector<StoredSample> samples;
  for (int64_t number = 0; number < responses; ++number) {
    StoredSample& sample = samples.emplace_back();
    sample.id = SampleId{number};
    sample.group = GroupId{number / copies};
  }
  store_.begin(std::move(samples));
}

Status EvaluatedSamples::share(const std::vector<Generated>& mine) {
  Rows rows;
  TokenLists tokens;
  std::vector<float> cut;
  std::vector<int64_t> prompts(store_.size(), 0), lens(store_.size(), 0);
  for (const Generated& each : mine) {
    rows.push_back(static_cast<size_t>(each.sample.value));
    tokens.push_back(each.response_ids);
    cut.push_back(each.finish == Finish::kLength ? 1.0F : 0.0F);
    prompts[rows.back()] = std::ssize(each.prompt_ids);
    lens[rows.back()] = std::ssize(each.response_ids);
  }
  const Field prompt_lens{kPromptLens, FieldType::kCount, FieldShape::kPerSample};
  const Field response_lens{responses_field().sizes, FieldType::kCount, FieldShape::kPerSample};
  store_.set_counts(prompt_lens.name, std::move(prompts));
  store_.set_counts(response_lens.name, std::move(lens));
  BRAID_TRY(store_.put_tokens(responses_field().name, rows, std::move(tokens)));
  BRAID_TRY(store_.put_reals(cut_field().name, rows, at::tensor(cut)));
  for (const Field* field : {&prompt_lens, &response_lens, &responses_field(), &cut_field()})
    exchange_.holdings().note(field->name, drawn_, store_.size());
  return exchange_.share({prompt_lens, response_lens}).status();
}

Status EvaluatedSamples::bring(const std::vector<SampleRows>& needed) {
  BRAID_TRY(exchange_.bring({responses_field(), cut_field()}, needed));
  return exchange_.end_step();
}

Status EvaluatedSamples::put(const Field& field, const std::vector<SampleRows>& said,
                             const std::map<size_t, double>& mine) {
  Rows rows;
  std::vector<float> values;
  for (const int32_t row : said[exchange_.rank()]) {
    rows.push_back(static_cast<size_t>(row));
    values.push_back(static_cast<float>(mine.at(rows.back())));
  }
  BRAID_TRY(store_.put_reals(field.name, rows, at::tensor(values)));
  exchange_.holdings().note(field.name, said, store_.size());
  found_.push_back(field);
  return ok_status();
}

Status EvaluatedSamples::bring_to_first() {
  std::vector<Field> fields = found_;
  fields.push_back(responses_field());
  fields.push_back(cut_field());
  BRAID_TRY(exchange_.bring_to_first(fields));
  return exchange_.end_step();
}

Result<std::vector<Generated>> EvaluatedSamples::responses(const Rows& rows) const {
  BRAID_ASSIGN(const TokenLists* tokens, store_.tokens(responses_field().name));
  BRAID_ASSIGN(const at::Tensor cut, store_.reals(cut_field().name, rows));
  const at::Tensor flags = cut.contiguous();
  std::vector<Generated> out;
  for (size_t i = 0; i < rows.size(); ++i) {
    Generated& each = out.emplace_back();
    each.sample = store_.sample(rows[i]).id;
    each.response_ids = (*tokens)[rows[i]];
    each.finish = flags.const_data_ptr<float>()[i] != 0 ? Finish::kLength : Finish::kStop;
  }
  return out;
}

}  // namespace braid::inline session
