#include "dataflow/graph.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

AlgorithmOptions named(const char* name, double kl = 0.1) {
  AlgorithmOptions options;
  options.name = name;
  options.kl.coef = kl;
  return options;
}

TEST(Graph, EveryAlgorithmIsWellFormed) {
  for (const char* name : {"ppo", "grpo", "sft", "rm"})
    for (const double kl : {0.0, 0.1}) {
      const auto graph = make_graph(named(name, kl));
      ASSERT_TRUE(graph.ok());
      EXPECT_TRUE(verify(*graph).ok()) << verify(*graph).message();
    }
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

}  // namespace
}  // namespace braid
