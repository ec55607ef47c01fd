#include "dataflow/graph.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/contains.h"
#include "base/text.h"
#include "dataflow/policy_graphs.h"
#include "foreign/keys/names.h"

namespace braid::inline dataflow {
namespace {

struct NamedGraph {
  const char* name;
  Graph (*make)(const AlgorithmOptions&);
};
constexpr NamedGraph kGraphs[] = {{"ppo", ppo_graph},
                                  {"grpo", grpo_graph},
                                  {"dapo", grpo_graph},
                                  {"dr_grpo", grpo_graph},
                                  {"gspo", grpo_graph},
                                  {"cispo", cispo_graph},
                                  {"rloo", rloo_graph},
                                  {"remax", remax_graph},
                                  {"reinforce", reinforce_graph},
                                  {"reinforce_plus_plus", reinforce_graph},
                                  {"reinforce_plus_plus_baseline", reinforce_baseline_graph},
                                  {"sft", sft_graph},
                                  {"rm", rm_graph},
                                  {"dpo", dpo_graph},
                                  {"orpo", orpo_graph},
                                  {"online_dpo", online_dpo_graph},
                                  {"kto", kto_graph},
                                  {"distill", distill_graph}};

bool reads(const Call& call, const std::string& field) {
  return std::find(call.reads.begin(), call.reads.end(), field) != call.reads.end();
}

void read_too(Call* call, const std::string& field) {
  if (!field.empty() && !reads(*call, field)) call->reads.push_back(field);
}

void write_counts(Call* call, const std::string& field) {
  for (const Field& written : call->writes)
    if (written.name == field) return;
  call->writes.push_back({field, FieldType::kCount, FieldShape::kPerSample});
}

// "response_ids" have "response_lens".
std::string lengths_of(const std::string& tokens) {
  const size_t end = tokens.ends_with("_ids") ? tokens.size() - 4 : tokens.size();
  return tokens.substr(0, end) + "_lens";
}

// Declares the counts that calls write, and which field says the sizes of which.
struct Counts {
  std::string groups;                            // of the samples of a step
  std::map<int32_t, std::string> kept;           // by reward call
  std::map<std::string, std::string> sizes;      // by field
  std::map<std::string, std::string> of_tokens;  // of those of them that are per token
};

// Which tokens the fields per token are of that a call writes: its own or those that it reads.
std::string lengths_in(const Call& call, const Counts& counts) {
  for (const Field& field : call.writes)
    if (field.type == FieldType::kTokens && field.shape == FieldShape::kPerToken)
      return lengths_of(field.name);
  for (const std::string& field : call.reads)
    if (const auto found = counts.of_tokens.find(field); found != counts.of_tokens.end())
      return found->second;
  return "";
}

Counts write_sizes(Graph* graph) {
  Counts out;
  std::string first;  // of a graph whose calls say nothing else
  for (size_t i = 0; i < graph->calls.size(); ++i) {
    Call& call = graph->calls[i];
    std::string lengths = lengths_in(call, out);
    if (first.empty()) first = lengths;
    if (lengths.empty()) lengths = first;
    for (size_t f = 0; f < call.writes.size(); ++f) {
      Field field = call.writes[f];
      const bool per_token = field.shape == FieldShape::kPerToken;
      if (field.type == FieldType::kTokens) field.sizes = lengths_of(field.name);
      if (field.type != FieldType::kTokens && per_token) field.sizes = lengths;
      out.sizes[field.name] = field.sizes;
      if (per_token) out.of_tokens[field.name] = field.sizes;
      if (field.type == FieldType::kTokens) write_counts(&call, field.sizes);
      call.writes[f] = std::move(field);
    }
    if (call.kind == CallKind::kFetch && out.groups.empty())
      write_counts(&call, out.groups = "groups");
    if (call.kind != CallKind::kReward) continue;
    std::string& kept = out.kept[static_cast<int32_t>(i)];
    write_counts(&call, kept = out.kept.size() == 1 ? "kept" : "kept_" + call.name);
  }
  return out;
}

// The role whose training decides the weights that a call computes with; empty without a model.
RoleId weights_of(const Graph& graph, const Call& call) {
  const bool follows = call.kind == CallKind::kFollow;
  const RoleSpec* spec = find_role(graph, follows ? RoleId{call.function} : call.role);
  return spec == nullptr || spec->weights_from.value.empty() ? call.role : spec->weights_from;
}

// Whether one of two calls moves weights that the other uses.
bool moves(const Graph& graph, const Call& a, const Call& b) {
  const auto moved_by = [&](const Call& call, const Call& other) {
    const std::vector<RoleId> used = used_roles(graph, other);
    return call.kind == CallKind::kFollow &&
           std::find(used.begin(), used.end(), RoleId{call.function}) != used.end();
  };
  return moved_by(a, b) || moved_by(b, a);
}

// The fields, with their sizes, that a step has from earlier ones, in which calls worked ahead.
std::map<std::string, std::string> made_ahead(const Graph& graph) {
  std::map<std::string, std::string> out;
  for (const Call& call : graph.calls)
    for (const Field& field : call.writes)
      if (call.steps_ahead > 0) out.emplace(field.name, field.sizes);
  return out;
}

// Functions that reward tokens, which are whitened over the step or penalized by what is known of
// all.
bool looks_at_tokens(const std::string& function) {
  const std::vector<std::string> of_tokens = {"ppo_advantages",   "distill_advantages",
                                              "rloo_advantages",  "reinforce_advantages",
                                              "remax_advantages", "reinforce_baseline_advantages"};
  return contains(of_tokens, function);
}

// Whether there are sums of the step that change, or say, something: what advantages are whitened
// by, the KL of the penalty, the variance that a critic explains. Rewards that are whitened need
// sums before the advantages, which need others.
bool sums_step(const std::string& function, const AlgorithmOptions& options) {
  const bool penalizes = options.kl.coef > 0 && options.kl.in == "reward";
  return penalizes || options.normalize_advantages == "batch" || function == "ppo_advantages";
}

// What divides GRPO's advantages are rewards. The tokens of RLOO's other samples count, of
// REINFORCE's baseline their rewards alone.
void note_what_it_looks_at(const AlgorithmOptions& options, Call* call) {
  const std::string& function = call->function;
  const bool tokens = looks_at_tokens(function) && !options.whiten_rewards;
  const bool kto = function == "kto_baseline";
  call->sums_step = kto || (tokens && sums_step(function, options));
  call->by_samples =
      kto || (tokens && options.normalize_advantages != "group" && function != "rloo_advantages");
  call->by_groups = kto || tokens || function == "best_and_worst" || function == "grpo_advantages";
  call->groups_alone = (tokens || function == "grpo_advantages") && !call->sums_step &&
                       options.normalize_advantages != "batch";
}

// Whether a select comes after the call in its step.
bool selects_later(const Graph& graph, const Call& call) {
  const auto at = static_cast<int32_t>(&call - graph.calls.data());
  for (int32_t i = at + 1; i < static_cast<int32_t>(graph.calls.size()); ++i) {
    if (graph.calls[i].kind == CallKind::kFetch) return false;
    if (graph.calls[i].kind == CallKind::kSelect) return true;
  }
  return false;
}

}  // namespace

const char* call_kind_name(CallKind kind) {
  switch (kind) {
    case CallKind::kFetch:
      return "fetch";
    case CallKind::kGenerate:
      return "generate";
    case CallKind::kInfer:
      return "infer";
    case CallKind::kReward:
      return "reward";
    case CallKind::kCompute:
      return "compute";
    case CallKind::kTrainStep:
      return "train_step";
    case CallKind::kFollow:
      return "follow";
    case CallKind::kSelect:
      return "select";
  }
  return "unknown";
}

bool uses_model(const Call& call) { return !call.role.value.empty(); }

const Call* find_call(const Graph& graph, const std::string& name) {
  for (const Call& call : graph.calls)
    if (call.name == name) return &call;
  return nullptr;
}

const RoleSpec* find_role(const Graph& graph, const RoleId& role) {
  for (const RoleSpec& spec : graph.roles)
    if (spec.role == role) return &spec;
  return nullptr;
}

std::vector<RoleId> used_roles(const Graph& graph, const Call& call) {
  if (uses_model(call)) return {call.role};
  if (call.kind != CallKind::kFollow) return {};
  return {weights_of(graph, call), RoleId{call.function}};
}

bool changes(const Call& call, const RoleId& role) {
  return (call.kind == CallKind::kTrainStep && call.role == role) ||
         (call.kind == CallKind::kFollow && call.function == role.value);
}

bool changes(const Graph& graph, const RoleId& role) {
  return std::any_of(graph.calls.begin(), graph.calls.end(),
                     [&](const Call& call) { return changes(call, role); });
}

bool draws_again(const Graph& graph) {
  return std::any_of(graph.calls.begin(), graph.calls.end(),
                     [](const Call& call) { return call.kind == CallKind::kSelect; });
}

CallId fetch_of(const Graph& graph, CallId select) {
  int32_t at = select.value;
  while (at >= 0 && graph.calls[at].kind != CallKind::kFetch) --at;
  BRAID_CHECK(at >= 0, "a select has a fetch before it");
  return CallId{at};
}

CallId select_around(const Graph& graph, CallId call) {
  for (int32_t i = call.value; i < static_cast<int32_t>(graph.calls.size()); ++i)
    if (graph.calls[i].kind == CallKind::kSelect)
      return fetch_of(graph, CallId{i}).value <= call.value ? CallId{i} : CallId{-1};
  return CallId{-1};
}

bool generates(const Graph& graph) {
  for (const Call& call : graph.calls)
    if (call.kind == CallKind::kGenerate) return true;
  return false;
}

void note_what_it_looks_at(const AlgorithmOptions& options, Graph* graph) {
  for (Call& call : graph->calls)
    if (call.kind == CallKind::kCompute) note_what_it_looks_at(options, &call);
}

void declare_sizes(Graph* graph) {
  const Counts counts = write_sizes(graph);
  for (Call& call : graph->calls) {
    const std::vector<std::string> read = call.reads;
    for (const std::string& field : read)
      if (const auto found = counts.sizes.find(field); found != counts.sizes.end())
        read_too(&call, found->second);
    const bool partitions = call.kind == CallKind::kInfer || call.kind == CallKind::kTrainStep ||
                            call.kind == CallKind::kCompute || call.kind == CallKind::kSelect;
    if (partitions) read_too(&call, counts.groups);
  }
  // Of the samples that a reward call has dropped, whoever waits for it gets nothing.
  const auto waits = dependencies(*graph);
  std::vector<std::set<int32_t>> before(graph->calls.size());
  for (size_t i = 0; i < graph->calls.size(); ++i) {
    for (const CallId id : waits[i]) {
      before[i].insert(id.value);
      before[i].insert(before[id.value].begin(), before[id.value].end());
    }
    for (const auto& [reward, kept] : counts.kept)
      if (before[i].count(reward) > 0 && graph->calls[i].kind != CallKind::kFollow)
        read_too(&graph->calls[i], kept);
  }
}

Status verify(const Graph& graph) {
  bool fetched = false;  // since the last select
  std::set<std::string> calls;
  std::map<std::string, std::string> fields;  // with their sizes
  const std::map<std::string, std::string> kept = made_ahead(graph);
  for (const Call& call : graph.calls) {
    const std::string where = cat("graph ", graph.name, ", call ", call.name);
    if (call.kind == CallKind::kFetch) fetched = true;
    if (call.kind == CallKind::kSelect && !std::exchange(fetched, false))
      return invalid_input(cat(where, ": no fetch before it that it could have run again"));
    if (call.kind == CallKind::kTrainStep && fetched && selects_later(graph, call))
      return invalid_input(cat(where, ": trains before the select that may run it again"));
    if (!calls.insert(call.name).second) return invalid_input(cat(where, ": name occurs twice"));
    if (!call.role.value.empty() && find_role(graph, call.role) == nullptr)
      return invalid_input(cat(where, ": role '", call.role, "' is not declared"));
    const RoleSpec* moved = find_role(graph, RoleId{call.function});
    if (call.kind == CallKind::kFollow && (moved == nullptr || moved->weights_from.value.empty()))
      return invalid_input(
          cat(where, ": its function '", call.function, "' is no role with weights_from"));
    for (const std::string& field : call.reads) {
      const auto& from = call.steps_ahead == 0 && kept.count(field) > 0 ? kept : fields;
      const auto found = from.find(field);
      if (found == from.end())
        return invalid_input(cat(where, ": reads '", field, "', which no earlier call writes"));
      if (const std::string& sizes = found->second; !sizes.empty() && !reads(call, sizes))
        return invalid_input(cat(where, ": reads '", field, "' without its sizes, '", sizes, "'"));
    }
    for (const Field& field : call.writes)
      if (!fields.emplace(field.name, field.sizes).second)
        return invalid_input(cat(where, ": field '", field.name, "' has two producers"));
  }
  return ok_status();
}

std::vector<std::vector<CallId>> dependencies(const Graph& graph) {
  std::map<std::string, size_t> producer;
  for (size_t i = 0; i < graph.calls.size(); ++i)
    for (const Field& field : graph.calls[i].writes) producer[field.name] = i;
  std::vector<std::vector<CallId>> out(graph.calls.size());
  for (size_t i = 0; i < graph.calls.size(); ++i) {
    const Call& call = graph.calls[i];
    std::set<size_t> before;
    for (const std::string& field : call.reads) {
      const size_t from = producer.at(field);
      if (graph.calls[from].steps_ahead == call.steps_ahead) before.insert(from);
    }
    const RoleId weights = weights_of(graph, call);
    for (size_t j = 0; j < i; ++j) {
      const bool trains =
          call.kind == CallKind::kTrainStep || graph.calls[j].kind == CallKind::kTrainStep;
      const bool same = !weights.value.empty() && weights_of(graph, graph.calls[j]) == weights;
      if (same && (trains || moves(graph, call, graph.calls[j]))) before.insert(j);
    }
    for (const size_t j : before) out[i].push_back(CallId{static_cast<int32_t>(j)});
  }
  return out;
}

std::vector<VersionEdge> version_edges(const Graph& graph) {
  std::vector<VersionEdge> edges;
  for (size_t i = 0; i < graph.calls.size(); ++i)
    for (size_t j = 0; j < graph.calls.size(); ++j) {
      const Call &user = graph.calls[i], &train = graph.calls[j];
      if (train.kind != CallKind::kTrainStep || !uses_model(user)) continue;
      if (weights_of(graph, user) != train.role) continue;
      edges.push_back(
          {CallId{static_cast<int32_t>(j)}, CallId{static_cast<int32_t>(i)}, j < i ? 0 : 1});
    }
  return edges;
}

Graph unroll(const Graph& graph, int steps) {
  BRAID_CHECK(steps >= 1, "at least one iteration");
  Graph out{graph.name, graph.roles, {}};
  for (int step = 0; step < steps; ++step)
    for (Call call : graph.calls) {
      const std::string suffix = cat("@", step);
      call.name += suffix;
      for (std::string& field : call.reads) field += suffix;
      for (Field& field : call.writes) {
        field.name += suffix;
        if (!field.sizes.empty()) field.sizes += suffix;
      }
      out.calls.push_back(std::move(call));
    }
  return out;
}

namespace {

// Functions of the user's stand where the algorithm has one that they can take the place of.
Status check_own_functions(const Graph& graph, const AlgorithmOptions& options) {
  const auto used = [&](const std::string& function) {
    return function.empty() ||
           std::any_of(graph.calls.begin(), graph.calls.end(),
                       [&](const Call& call) { return call.function == function; });
  };
  if (!used(options.loss))
    return invalid_input(cat("algorithm.loss: ", graph.name,
                             " has no loss over log-probs, old log-probs and advantages that "
                             "another could take the place of; remove it"));
  if (!used(options.advantages))
    return invalid_input(cat("algorithm.advantages: those of ", graph.name,
                             " are no function of rewards alone that another could take the place "
                             "of; remove it"));
  if (!options.advantages.empty() && options.kl.coef != 0 && options.kl.in == "reward")
    return invalid_input(
        "algorithm.kl.in: reward subtracts the penalty from rewards per token, which "
        "algorithm.advantages does without; use own, where your function gets the reference's "
        "log-probs, loss, or kl.coef: 0");
  return ok_status();
}

// What learns from the samples of a step waits until it has those with a signal.
void draw_until_filled(Graph* graph) {
  const auto reward = std::find_if(graph->calls.begin(), graph->calls.end(),
                                   [](const Call& call) { return call.kind == CallKind::kReward; });
  for (auto later = reward + 1; later != graph->calls.end(); ++later)
    if (later->kind != CallKind::kFollow) later->reads.push_back("selected");
  graph->calls.insert(reward + 1, {"select",
                                   CallKind::kSelect,
                                   {},
                                   "signal",
                                   {"rewards"},
                                   {{"selected", FieldType::kCount, FieldShape::kPerSample}}});
}

}  // namespace

bool has_values(const Graph& graph) {
  return std::any_of(graph.calls.begin(), graph.calls.end(), [](const Call& call) {
    return call.kind == CallKind::kInfer && call.function == "values";
  });
}

std::vector<std::string> algorithm_names() {
  std::vector<std::string> names;
  for (const NamedGraph& entry : kGraphs) names.emplace_back(entry.name);
  return names;
}

Result<Graph> make_graph(const AlgorithmOptions& options) {
  for (const NamedGraph& entry : kGraphs)
    if (options.name == entry.name) {
      Graph graph = entry.make(options);
      BRAID_TRY(check_own_functions(graph, options));
      if (options.dynamic_sampling) draw_until_filled(&graph);
      declare_sizes(&graph);
      return graph;
    }
  const std::vector<std::string> names = algorithm_names();
  return invalid_input(cat("algorithm.name: unknown algorithm '", options.name, "'",
                           algorithm_hint(options.name, names), "; known: ", join(names, ", ")));
}

Graph with_moving_reference(Graph graph, int64_t every_steps) {
  for (RoleSpec& spec : graph.roles) {
    if (every_steps == 0 || spec.role.value != "reference") continue;
    spec.weights_from = RoleId{"actor"};
    graph.calls.push_back({"sync_reference", CallKind::kFollow, {}, spec.role.value, {}, {}});
    graph.calls.back().every_steps = every_steps;
  }
  return graph;
}

Call fetch_prompts_call() {
  return {"fetch", CallKind::kFetch,
          {},      "prompts",
          {},      {{"prompt_ids", FieldType::kTokens, FieldShape::kPerSample}}};
}

Call generate_call() {
  return {"generate",
          CallKind::kGenerate,
          RoleId{"actor"},
          "",
          {"prompt_ids"},
          {{"response_ids", FieldType::kTokens, FieldShape::kPerToken},
           {"sampler_logprobs", FieldType::kReal, FieldShape::kPerToken},
           {"truncated", FieldType::kFlag, FieldShape::kPerSample}}};
}

Call ref_logprob_call() {
  return {"ref_logprob",
          CallKind::kInfer,
          RoleId{"reference"},
          "logprobs",
          {"prompt_ids", "response_ids"},
          {{"ref_logprobs"}}};
}

Call old_logprob_call(const AlgorithmOptions& options) {
  if (options.old_logprobs == "sampler")
    return {"old_logprob",      CallKind::kCompute,   {},
            "sampler_logprobs", {"sampler_logprobs"}, {{"old_logprobs"}}};
  return {"old_logprob",
          CallKind::kInfer,
          RoleId{"actor"},
          "logprobs",
          {"prompt_ids", "response_ids"},
          {{"old_logprobs"}}};
}

Call reward_call() {
  return {"reward",
          CallKind::kReward,
          {},
          "",
          {"prompt_ids", "response_ids", "truncated"},
          {{"rewards", FieldType::kReal, FieldShape::kPerSample}}};
}

}  // namespace braid::inline dataflow
