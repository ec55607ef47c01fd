#include "dataflow/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "dataflow/parse_graph.h"

namespace braid::inline dataflow {
namespace {

AlgorithmOptions named(const std::string& name, double kl = 0.1) {
  AlgorithmOptions options;
  options.name = name;
  options.kl.coef = kl;
  return options;
}

TEST(Graph, EveryAlgorithmIsWellFormed) {
  for (const std::string& name : algorithm_names())
    for (const double kl : {0.0, 0.1}) {
      const auto graph = make_graph(named(name, kl));
      ASSERT_TRUE(graph.ok());
      EXPECT_TRUE(verify(*graph).ok()) << verify(*graph).message();
      EXPECT_EQ(graph->name, name);
    }
}

// Who rewards tokens subtracts the penalty there; the others have it in the loss.
TEST(Graph, ReferenceIsReadWhereThePenaltyIs) {
  const auto reader = [](const char* name, const char* in) {
    AlgorithmOptions options = named(name);
    options.kl.in = in;
    const Graph graph = *make_graph(options);
    std::string out;
    for (const Call& call : graph.calls)
      for (const std::string& field : call.reads)
        if (field == "ref_logprobs") out += call.name + " ";
    return out;
  };
  for (const char* name : {"rloo", "reinforce", "reinforce_plus_plus_baseline"}) {
    EXPECT_EQ(reader(name, "reward"), "advantages ") << name;
    EXPECT_EQ(reader(name, "loss"), "update_actor ") << name;
  }
  for (const char* name : {"grpo", "dapo", "cispo"})
    EXPECT_EQ(reader(name, "loss"), "update_actor ") << name;
  EXPECT_EQ(find_call(*make_graph(named("cispo")), "update_actor")->function, "cispo");
  AlgorithmOptions sampled = named("rloo");
  sampled.old_logprobs = "sampler";
  EXPECT_EQ(find_call(*make_graph(sampled), "old_logprob")->kind, CallKind::kCompute);
}

// What learns from samples waits for the select; what makes them does not.
TEST(Graph, FurtherPromptsAreDrawnBeforeWhatLearns) {
  for (const char* name : {"grpo", "rloo", "online_dpo"}) {
    AlgorithmOptions options = named(name);
    EXPECT_FALSE(draws_again(*make_graph(options)));
    options.dynamic_sampling = true;
    const Graph graph = *make_graph(options);
    ASSERT_TRUE(verify(graph).ok()) << verify(graph).message();
    ASSERT_TRUE(draws_again(graph));
    const auto waits = dependencies(graph);
    const auto select = static_cast<int32_t>(find_call(graph, "select") - graph.calls.data());
    EXPECT_EQ(graph.calls[select - 1].name, "reward");
    EXPECT_EQ(fetch_of(graph, CallId{select}), CallId{0});
    for (int32_t i = 0; i < static_cast<int32_t>(graph.calls.size()); ++i) {
      EXPECT_EQ(select_around(graph, CallId{i}), i <= select ? CallId{select} : CallId{-1}) << i;
      if (i <= select) continue;
      EXPECT_THAT(waits[i], testing::Contains(CallId{select})) << graph.calls[i].name;
    }
    EXPECT_EQ(*parse_graph(graph_to_yaml(graph), "graph"), graph);
  }
}

TEST(Graph, SamplesAreCarriedWhereSomethingCorrects) {
  for (const char* name : {"ppo", "grpo", "rloo", "reinforce", "cispo"}) {
    const Graph graph = *make_graph(named(name));
    EXPECT_EQ(carried_steps(graph), 0);
    const Graph carried = *carried_over(graph, 3);
    ASSERT_TRUE(verify(carried).ok()) << verify(carried).message();
    EXPECT_EQ(carried_steps(carried), 3);
    EXPECT_EQ(find_call(carried, "generate")->carried_steps, 3);
    EXPECT_THAT(find_call(carried, "update_actor")->reads, testing::Contains(kWeightsVersion));
  }
  const auto refused = [](const char* name) {
    return carried_over(*make_graph(named(name)), 1).status().message();
  };
  EXPECT_THAT(refused("remax"), testing::HasSubstr("rollout.in_flight: remax generates a second"));
  EXPECT_THAT(refused("online_dpo"), testing::HasSubstr("nothing corrects"));
  EXPECT_THAT(refused("sft"), testing::HasSubstr("sft generates nothing"));
}

TEST(Graph, WhatMayRunAgainDoesNotTrain) {
  AlgorithmOptions options = named("grpo");
  options.dynamic_sampling = true;
  Graph graph = *make_graph(options);
  graph.calls.erase(graph.calls.begin());
  for (Call& call : graph.calls) call.reads.clear();
  EXPECT_NE(verify(graph).message().find("no fetch before it"), std::string::npos);
  graph = *make_graph(options);
  graph.calls.insert(graph.calls.begin() + 1, {"early",
                                               CallKind::kTrainStep,
                                               RoleId{"actor"},
                                               "policy",
                                               {"prompt_ids", "prompt_lens"},
                                               {}});
  EXPECT_NE(verify(graph).message().find("trains before the select"), std::string::npos);
}

TEST(Graph, ReferenceExistsOnlyWithKl) {
  EXPECT_EQ(make_graph(named("ppo", 0.1))->roles.size(), 3u);
  EXPECT_EQ(make_graph(named("ppo", 0))->roles.size(), 2u);
}

TEST(Graph, UnknownAlgorithmNamesTheNearest) {
  const Status status = make_graph(named("grop")).status();
  EXPECT_EQ(status.code(), Code::kInvalidInput);
  EXPECT_NE(status.message().find("did you mean 'grpo'"), std::string::npos);
}

TEST(Graph, TrainingWaitsForEarlierUsesOfItsModel) {
  const Graph graph = *make_graph(named("ppo"));
  const auto waits = dependencies(graph);
  size_t generate = 0, update = 0;
  for (size_t i = 0; i < graph.calls.size(); ++i) {
    if (graph.calls[i].name == "generate") generate = i;
    if (graph.calls[i].name == "update_actor") update = i;
  }
  bool found = false;
  for (const CallId id : waits[update]) found |= id.value == static_cast<int32_t>(generate);
  EXPECT_TRUE(found);
}

TEST(Graph, VerifyFindsMissingProducersAndDoubleOnes) {
  Graph graph = *make_graph(named("grpo"));
  graph.calls[1].reads.push_back("nothing");
  EXPECT_NE(verify(graph).message().find("'nothing'"), std::string::npos);
  graph = *make_graph(named("grpo"));
  graph.calls[2].writes.push_back({"response_ids"});
  EXPECT_NE(verify(graph).message().find("two producers"), std::string::npos);
}

bool reads(const Graph& graph, const std::string& call, const std::string& field) {
  const std::vector<std::string>& all = find_call(graph, call)->reads;
  return std::find(all.begin(), all.end(), field) != all.end();
}

TEST(Graph, SizesAreFieldsOfTheirOwn) {
  const Graph graph = *make_graph(named("ppo"));
  const std::vector<Field>& made = find_call(graph, "generate")->writes;
  const Field lengths{"response_lens", FieldType::kCount, FieldShape::kPerSample};
  EXPECT_THAT(made, testing::Contains(lengths));
  for (const Field& field : made)
    if (field.shape == FieldShape::kPerToken) {
      EXPECT_EQ(field.sizes, "response_lens") << field.name;
    }
  for (const char* call : {"reward", "old_logprob", "values", "advantages", "update_actor"})
    EXPECT_TRUE(reads(graph, call, "response_lens")) << call;
  EXPECT_TRUE(reads(graph, "generate", "prompt_lens"));
  EXPECT_FALSE(reads(graph, "generate", "response_lens"));
  EXPECT_TRUE(reads(graph, "values", "groups"));
  EXPECT_TRUE(reads(graph, "update_critic", "kept"));
  EXPECT_FALSE(reads(graph, "ref_logprob", "kept")) << "it need not wait for rewards";
  Graph again = graph;
  declare_sizes(&again);
  EXPECT_EQ(again, graph);
  for (Call& call : again.calls)
    if (call.name == "values") std::erase(call.reads, "response_lens");
  EXPECT_THAT(verify(again).message(),
              testing::HasSubstr("call values: reads 'response_ids' without its sizes"));
  const Graph remax = *make_graph(named("remax"));
  EXPECT_TRUE(reads(remax, "reward_greedy", "greedy_lens"));
  EXPECT_TRUE(reads(remax, "update_actor", "kept_reward_greedy"));
}

CallId id_of(const Graph& graph, const std::string& name) {
  for (size_t i = 0; i < graph.calls.size(); ++i)
    if (graph.calls[i].name == name) return CallId{static_cast<int32_t>(i)};
  ADD_FAILURE() << "no call " << name;
  return {};
}

bool waits_for(const Graph& graph, const std::string& call, const std::string& earlier) {
  const auto waits = dependencies(graph)[id_of(graph, call).value];
  return std::find(waits.begin(), waits.end(), id_of(graph, earlier)) != waits.end();
}

TEST(Graph, RemaxGeneratesTwiceAndTheGreedyOnePerPrompt) {
  const Graph graph = *make_graph(named("remax"));
  EXPECT_EQ(find_call(graph, "generate_greedy")->samples_per_prompt, 1);
  EXPECT_EQ(find_call(graph, "generate")->samples_per_prompt, 0);
  EXPECT_FALSE(waits_for(graph, "generate_greedy", "generate"));
  EXPECT_TRUE(waits_for(graph, "advantages", "reward_greedy"));
}

// What a call says of each token is of the tokens that it reads.
TEST(Graph, KtoEstimatesItsBaselineOnOtherCompletions) {
  const Graph graph = *make_graph(named("kto"));
  EXPECT_FALSE(generates(graph));
  for (const char* call : {"mismatched_logprob", "mismatched_ref_logprob"}) {
    EXPECT_EQ(find_call(graph, call)->writes.front().sizes, "mismatched_lens");
    EXPECT_TRUE(reads(graph, call, "mismatched_lens"));
    EXPECT_FALSE(reads(graph, call, "response_lens"));
    EXPECT_TRUE(waits_for(graph, "baseline", call));
  }
  EXPECT_EQ(find_call(graph, "ref_logprob")->writes.front().sizes, "response_lens");
  EXPECT_TRUE(waits_for(graph, "update_actor", "baseline"));
}

TEST(Graph, DpoNeedsItsReferenceWithoutKlPenalty) {
  const Graph graph = *make_graph(named("dpo", 0));
  EXPECT_NE(find_role(graph, RoleId{"reference"}), nullptr);
  EXPECT_FALSE(generates(graph));
  EXPECT_EQ(find_role(*make_graph(named("orpo", 0)), RoleId{"reference"}), nullptr);
}

// Their losses compare two samples of a group, which must meet.
TEST(Graph, LossesOnPairsCompareSamples) {
  for (const std::string& name : algorithm_names()) {
    bool compares = false;
    const Graph graph = *make_graph(named(name, 0));
    for (const Call& call : graph.calls) compares = compares || call.compares_samples;
    EXPECT_EQ(compares, name == "rm" || name == "dpo" || name == "orpo" || name == "online_dpo")
        << name;
  }
}

// Single responses need no other in their micro-batch.
TEST(Graph, RewardModelsReadWhatTheirLossIsOf) {
  const auto graph = [](const char* loss) {
    AlgorithmOptions options = named("rm");
    options.reward_loss = loss;
    const Graph out = *make_graph(options);
    EXPECT_TRUE(verify(out).ok()) << verify(out).message();
    EXPECT_EQ(find_call(out, "update_reward")->function, loss);
    EXPECT_EQ(find_call(out, "update_reward")->compares_samples, std::string(loss) == "pairwise");
    return out;
  };
  EXPECT_EQ(find_call(graph("pairwise"), "fetch")->function, "pairs");
  EXPECT_TRUE(reads(graph("squared_error"), "update_reward", "score"));
  EXPECT_TRUE(reads(graph("cross_entropy"), "update_reward", "wanted"));
}

// Where a library's advantages stand for an algorithm's, nothing that went into those is left.
TEST(Graph, OwnAdvantagesLeaveNothingThatTheyDoNotRead) {
  const auto made = [](const std::string& name, const std::string& kl_in) {
    AlgorithmOptions options = named(name);
    options.kl.in = kl_in;
    options.advantages = "a.so";
    return make_graph(options);
  };
  for (const char* name : {"rloo", "reinforce", "reinforce_plus_plus"}) {
    EXPECT_THAT(made(name, "reward").status().message(),
                testing::HasSubstr("algorithm.kl.in: reward subtracts"))
        << name;
    const auto graph = made(name, "own");
    ASSERT_TRUE(graph.ok()) << name << graph.status().message();
    EXPECT_TRUE(reads(*graph, "advantages", "ref_logprobs")) << name;
  }
  EXPECT_TRUE(made("grpo", "loss").ok());
  for (const char* name : {"ppo", "remax", "distill", "dpo", "online_dpo", "sft"})
    EXPECT_THAT(made(name, "own").status().message(),
                testing::HasSubstr(cat("algorithm.advantages: those of ", name)))
        << name;
}

// What its function of advantages looks at: groups, samples, sums of the step.
std::string looked_at(const char* name, const char* normalize, bool whiten = false,
                      const char* kl_in = "loss") {
  AlgorithmOptions options = default_options(name);
  options.normalize_advantages = normalize, options.whiten_rewards = whiten;
  options.kl.coef = 0.1, options.kl.in = kl_in;
  Graph graph = *make_graph(options);
  note_what_it_looks_at(options, &graph);
  std::vector<std::string> out;
  for (const Call& call : graph.calls) {
    if (call.by_groups) out.push_back("groups");
    if (call.by_samples) out.push_back("samples");
    if (call.sums_step) out.push_back("sums");
    if (call.groups_alone) out.push_back("alone");
  }
  return join(out, " ");
}

TEST(Graph, NotesWhatFunctionsLookAt) {
  for (const char* name : {"grpo", "dapo"})  // what they divide by are rewards
    for (const char* normalize : {"none", "group"})
      EXPECT_EQ(looked_at(name, normalize), "groups alone") << name;
  EXPECT_EQ(looked_at("grpo", "batch"), "groups");
  for (const char* name : {"reinforce", "reinforce_plus_plus_baseline", "remax", "distill"}) {
    EXPECT_EQ(looked_at(name, "none"), "groups samples alone") << name;
    EXPECT_EQ(looked_at(name, "group"), "groups alone") << name;
    EXPECT_EQ(looked_at(name, "batch"), "groups samples sums") << name;
  }
  EXPECT_EQ(looked_at("rloo", "none"), "groups alone");
  EXPECT_EQ(looked_at("rloo", "none", false, "reward"), "groups sums");
  EXPECT_EQ(looked_at("rloo", "none", true), "");  // sums before those of the advantages
  EXPECT_EQ(looked_at("ppo", "none"), "groups samples sums");
  EXPECT_EQ(looked_at("online_dpo", "none"), "groups");
  EXPECT_EQ(looked_at("kto", "none"), "groups samples sums");  // its baseline is the same for all
}

TEST(Unroll, IterationsWaitForTheWeightsTheyUse) {
  const Graph graph = unroll(*make_graph(named("ppo")), 3);
  EXPECT_TRUE(verify(graph).ok()) << verify(graph).message();
  EXPECT_EQ(graph.calls.size(), 3 * make_graph(named("ppo"))->calls.size());
  EXPECT_TRUE(waits_for(graph, "generate@1", "update_actor@0"));
  EXPECT_TRUE(waits_for(graph, "values@2", "update_critic@1"));
  EXPECT_FALSE(waits_for(graph, "generate@1", "update_critic@0"));
  EXPECT_TRUE(dependencies(graph)[id_of(graph, "fetch@2").value].empty());
  EXPECT_FALSE(waits_for(graph, "ref_logprob@1", "ref_logprob@0"));
}

// One role with both heads, one update that reads what both losses need.
TEST(SharedTrunk, TheActorGivesValuesAndOneUpdateHasBothLosses) {
  const auto graph = with_shared_trunk(*make_graph(named("ppo")));
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  EXPECT_TRUE(verify(*graph).ok()) << verify(*graph).message();
  EXPECT_EQ(find_role(*graph, RoleId{"critic"}), nullptr);
  EXPECT_EQ(find_call(*graph, "update_critic"), nullptr);
  EXPECT_TRUE(find_role(*graph, RoleId{"actor"})->value_head);
  EXPECT_EQ(find_call(*graph, "values")->role.value, "actor");
  EXPECT_EQ(find_call(*graph, "update_actor")->function, "policy_and_value");
  for (const char* producer : {"values", "advantages", "old_logprob"})
    EXPECT_TRUE(waits_for(*graph, "update_actor", producer)) << producer;
  EXPECT_TRUE(has_values(*graph));
  EXPECT_EQ(*parse_graph(graph_to_yaml(*graph), "g.yaml"), *graph);
  EXPECT_THAT(with_shared_trunk(*make_graph(named("grpo"))).status().message(),
              testing::HasSubstr("critic.shared_trunk: grpo has no critic"));
  AlgorithmOptions own = named("ppo");
  own.loss = "mine.so";
  EXPECT_THAT(with_shared_trunk(*make_graph(own)).status().message(),
              testing::HasSubstr("mine.so (algorithm.loss) has no place"));
}

TEST(MovingReference, MovesBehindTheUpdateAndBeforeItIsUsedAgain) {
  const Graph whole = with_moving_reference(*make_graph(named("ppo")), 2);
  EXPECT_TRUE(verify(whole).ok()) << verify(whole).message();
  EXPECT_EQ(whole.calls.back().every_steps, 2);
  EXPECT_TRUE(waits_for(whole, "sync_reference", "update_actor"));
  EXPECT_FALSE(waits_for(whole, "sync_reference", "update_critic"));
  const Graph graph = unroll(whole, 2);
  EXPECT_TRUE(waits_for(graph, "ref_logprob@1", "sync_reference@0"));
  EXPECT_TRUE(waits_for(graph, "update_actor@1", "sync_reference@0"));  // it reads the weights
  EXPECT_FALSE(waits_for(graph, "generate@1", "sync_reference@0"));
  EXPECT_TRUE(changes(whole, RoleId{"reference"}));
  EXPECT_FALSE(changes(*make_graph(named("ppo")), RoleId{"reference"}));
  EXPECT_EQ(*parse_graph(graph_to_yaml(whole), "g.yaml"), whole);
  EXPECT_EQ(with_moving_reference(*make_graph(named("ppo")), 0), *make_graph(named("ppo")));
  const Graph without = *make_graph(named("grpo", 0));
  EXPECT_EQ(with_moving_reference(without, 1), without);
}

TEST(VersionEdges, LagIsOneWhereTrainingComesLaterInTheIteration) {
  const Graph graph = *make_graph(named("grpo"));
  const CallId update = id_of(graph, "update_actor");
  EXPECT_EQ(version_edges(graph),
            (std::vector<VersionEdge>{{update, id_of(graph, "generate"), 1},
                                      {update, id_of(graph, "old_logprob"), 1},
                                      {update, update, 1}}));
}

constexpr const char* kOwnGraph = R"(
name: ppo_ema
roles:
  actor: {trained: true}
  ema: {weights_from: actor}
  judge: {scalar_head: true}
calls:
  fetch: {kind: fetch, function: prompts, writes: {prompt_ids: tokens per_sample}}
  generate: {kind: generate, role: actor, reads: [prompt_ids], writes: {response_ids: tokens per_token}}
  score: {kind: infer, role: judge, function: scores, reads: [prompt_ids, response_ids], writes: {rewards: real per_sample}}
  ema_logprob: {kind: infer, role: ema, reads: [prompt_ids, response_ids], writes: [ref_logprobs]}
  update_actor: {kind: train_step, role: actor, function: policy, reads: [rewards, ref_logprobs]}
)";

TEST(ParseGraph, ReadsAGraphWithWeightVersions) {
  const auto graph = parse_graph(kOwnGraph, "g.yaml");
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  EXPECT_EQ(graph->calls.size(), 5u);
  EXPECT_EQ(find_call(*graph, "score")->writes.front(),
            (Field{"rewards", FieldType::kReal, FieldShape::kPerSample}));
  EXPECT_TRUE(waits_for(*graph, "update_actor", "ema_logprob"));  // it follows the same weights
  EXPECT_TRUE(waits_for(unroll(*graph, 2), "ema_logprob@1", "update_actor@0"));
  EXPECT_EQ(version_edges(*graph).size(), 3u);
}

TEST(ParseGraph, PrintsAndReadsBackEqual) {
  for (const std::string& name : algorithm_names()) {
    const Graph graph = *make_graph(named(name));
    const auto again = parse_graph(graph_to_yaml(graph), "g.yaml");
    ASSERT_TRUE(again.ok()) << again.status().message() << graph_to_yaml(graph);
    EXPECT_EQ(*again, graph);
  }
  const Graph own = *parse_graph(kOwnGraph, "g.yaml");
  EXPECT_EQ(*parse_graph(graph_to_yaml(own), "g.yaml"), own);
}

TEST(ParseGraph, NamesMayHoldAnyBytes) {
  Graph graph{"a \"quoted\\name\n\x9e", {}, {{"c: {\x01}", CallKind::kFetch, {}, "", {}, {}}}};
  declare_sizes(&graph);
  const auto again = parse_graph(graph_to_yaml(graph), "g.yaml");
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(*again, graph);
}

struct BadGraph {
  const char* text;
  const char* message;
};
class BadGraphs : public testing::TestWithParam<BadGraph> {};
TEST_P(BadGraphs, ErrorNamesPlaceAndRule) {
  const Status status = parse_graph(GetParam().text, "g.yaml").status();
  EXPECT_EQ(status.code(), Code::kInvalidInput);
  EXPECT_THAT(status.message(), testing::HasSubstr(GetParam().message));
}
INSTANTIATE_TEST_SUITE_P(
    Cases, BadGraphs,
    testing::Values(
        BadGraph{"[]", "must be a group of keys"}, BadGraph{"calls: {}", "name is missing"},
        BadGraph{"name: g", "calls is empty"},
        BadGraph{"name: g\nnodes: {}", "g.yaml:2: unknown key 'nodes'"},
        BadGraph{"name: g\ncalls:\n  a: {role: x}", "calls.a.kind is missing; one of fetch"},
        BadGraph{"name: g\ncalls:\n  a: {kind: generat}", "did you mean 'generate'"},
        BadGraph{"name: g\ncalls:\n  a: {kind: generate}", "call a: role is missing"},
        BadGraph{"name: g\ncalls:\n  a: {kind: infer, role: x}", "role 'x' is not declared"},
        BadGraph{"name: g\ncalls:\n  a: {kind: compute, reads: [b]}",
                 "reads 'b', which no earlier call writes"},
        BadGraph{"name: g\nroles: {x: }\ncalls:\n  a: {kind: train_step, role: x}",
                 "role x is not declared as trained"},
        BadGraph{"name: g\nroles: {x: {trained: true}}\ncalls:\n  a: {kind: infer, role: x}",
                 "role x: is declared as trained, but no train_step has it"},
        BadGraph{"name: g\nroles: {x: {weights_from: y}}\ncalls:\n  a: {kind: infer, role: x}",
                 "weights_from: y must be another role that is trained"},
        BadGraph{"name: g\nroles: {x: {trained: maybe}}", "roles.x.trained must be true or false"},
        BadGraph{"name: g\nroles: {x: {scalar_head: true}}\ncalls:\n  a: {kind: generate, role: x}",
                 "has a scalar head and cannot generate"},
        BadGraph{"name: g\nroles: {x: }\ncalls:\n  a: {kind: infer, role: x, function: score}",
                 "must be logprobs, values or scores"},
        BadGraph{"name: g\ncalls:\n  a: {kind: fetch, writes: {b: token}}",
                 "calls.a.writes.b: 'token' must be tokens, real, flag or count"},
        BadGraph{"name: g\ncalls:\n  a: {kind: fetch, reads: b}", "reads must be a list"},
        BadGraph{"name: g\nroles: {x: }\ncalls:\n  a: {kind: follow, function: x}",
                 "its function 'x' is no role with weights_from"},
        BadGraph{"name: g\ncalls:\n  a: {kind: follow, every_steps: 0}",
                 "every_steps must be a whole number of at least 1"},
        BadGraph{"name: g\ncalls:\n  a: {kind: fetch, samples_per_prompt: -1}",
                 "samples_per_prompt must be a whole number"}));

}  // namespace
}  // namespace braid::inline dataflow
