#include "session/steps_ahead.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/contains.h"
#include "base/text.h"

namespace braid::inline session {
namespace {

constexpr const char* kSteps = "steps";
constexpr const char* kMetrics = "metrics";

// Fields of different steps have the same names.
std::string tensor_name(size_t step, const std::string& field) { return cat(step, ".", field); }

// Of what most_age() consists.
std::string text_of_age(const Program& program) {
  const bool carries = carried_steps(program.graph) > 0;
  const char* const both = program.staleness > 0 && carries ? " and " : "";
  return cat(program.staleness > 0 ? "staleness of the plan" : "", both,
             carries ? "rollout.carried_steps" : "");
}

}  // namespace

StepsAhead::StepsAhead(const Config& config, const Program& program, Communicator* everyone)
    : config_(config),
      program_(program),
      store_(program.graph),
      rows_(config, program, store_),
      exchange_(everyone, store_),
      account_(program, rows_, exchange_, steps_ahead(program.graph)) {}

int64_t StepsAhead::wanted(int64_t step) const {
  return std::min(steps_ahead(program_.graph), config_.train.total_steps - step);
}

void StepsAhead::put() {
  queue_.push_back({std::move(store_), exchange_.holdings(), std::move(metrics_)});
  abandon();
}

void StepsAhead::copy_first(SampleStore* store, FieldHoldings* holdings, Metrics* metrics) const {
  const Waiting& first = queue_.front();
  *store = first.store;
  *holdings = first.holdings;
  merge(*metrics, first.metrics);
}

void StepsAhead::abandon() {
  store_ = SampleStore(program_.graph);
  rows_.forget();
  account_.begin();
  metrics_.clear();
}

// All rows of all fields to the first rank.
Status StepsAhead::gather(Waiting& step) {
  std::swap(store_, step.store);
  exchange_.holdings() = step.holdings;
  Status status;
  for (const Call& call : program_.graph.calls) {
    std::vector<Field> fields;
    for (const Field& field : call.writes)
      if (call.steps_ahead > 0 && field.type != FieldType::kCount) fields.push_back(field);
    if (status.ok()) status = exchange_.bring_to_first(fields);
  }
  if (status.ok()) status = exchange_.end_step();
  step.holdings = exchange_.holdings();
  std::swap(store_, step.store);
  return status;
}

Result<Json> StepsAhead::save(NamedTensors& tensors, SampleReader& reader) {
  Json out = {{kSteps, Json::array()}};
  for (size_t i = 0; i < queue_.size(); ++i) {
    BRAID_TRY(gather(queue_[i]));
    BRAID_ASSIGN(const Json metrics, metrics_to_first(queue_[i].metrics, exchange_));
    if (exchange_.rank() != 0) continue;
    SampleStore& store = queue_[i].store;
    BRAID_TRY(reader.read(store.all_rows(), store).at("data.train"));
    NamedTensors fields;
    BRAID_ASSIGN(Json step, store_json(store, fields));
    step[kMetrics] = metrics;
    out[kSteps].push_back(std::move(step));
    for (auto& [field, values] : fields)
      tensors.emplace_back(tensor_name(i, field), std::move(values));
  }
  return out;
}

Status StepsAhead::load(const Json& json, const NamedTensors& tensors) {
  queue_.clear();
  abandon();
  BRAID_ASSIGN(const Json steps, json_field<Json>(json, kSteps));
  for (size_t i = 0; i < steps.size(); ++i) {
    NamedTensors fields;
    const std::string prefix = tensor_name(i, "");
    for (const auto& [name, values] : tensors)
      if (name.rfind(prefix, 0) == 0) fields.emplace_back(name.substr(prefix.size()), values);
    BRAID_TRY(load_store(steps[i], fields, store_));
    for (const auto& list : {store_.token_fields(), store_.real_fields()})
      for (const std::string& field : list) exchange_.note_everywhere(field);
    if (exchange_.rank() == 0) {
      BRAID_ASSIGN(metrics_, metrics_field(steps[i], kMetrics));
    }
    put();
  }
  return ok_status();
}

std::string uncorrected_text(const Config& config, const Graph& graph) {
  const AlgorithmOptions& options = config.algorithm;
  const bool recomputes = std::any_of(graph.calls.begin(), graph.calls.end(), [](const Call& call) {
    return call.kind == CallKind::kTrainStep && contains(call.reads, "old_logprobs");
  });
  if (steps_ahead(graph) == 0 || !recomputes || weighs_sampled(options) ||
      options.old_logprobs != "recompute")
    return "";
  return cat("staleness ", steps_ahead(graph),
             ": algorithm.old_logprobs: recompute takes the present policy for the older one that "
             "sampled, and nothing corrects for the difference; weigh tokens by it with "
             "algorithm.tis_cap or algorithm.icepop_high, or clip against the "
             "policy that sampled with algorithm.old_logprobs=sampler");
}

int64_t most_age(const Program& program) {
  return program.staleness + carried_steps(program.graph);
}

Status check_versions(const SampleStore& store, const Program& program, int64_t step) {
  const std::vector<int64_t> versions = store.counts(kWeightsVersion);
  const int64_t most = most_age(program);
  for (size_t row = 0; row < versions.size(); ++row)
    if (versions[row] > step || step - versions[row] > most)
      return {Code::kDataLoss,
              cat("sample ", store.sample(row).id, " was drawn with the weights of after step ",
                  versions[row], ", and step ", step + 1, " may learn from those of step ",
                  step - most, " to ", step, " (", text_of_age(program), ")")};
  return ok_status();
}

void note_versions(const SampleStore& store, const Rows& rows, const Program& program, int64_t step,
                   Metrics& metrics) {
  const std::vector<int64_t> versions = store.counts(kWeightsVersion);
  for (const size_t row : rows) {
    const int64_t age = step - versions[row];
    for (const char* name : {"staleness/max", "staleness/mean"})
      metrics[name].add(static_cast<double>(age));
    for (int64_t each = 0; each <= most_age(program); ++each)
      metrics[cat("staleness/age_", each, "_frac")].add(age == each ? 1 : 0);
  }
}

}  // namespace braid::inline session
