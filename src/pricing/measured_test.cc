#include "pricing/measured.h"

#include <gmock/gmock.h>

#include "plan/execution_plan.h"
#include "plan/test_problem.h"
#include "pricing/compute.h"

namespace braid::inline pricing {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A problem on one device whose cluster names a profile of the actor's and critic's layers.
PlanningProblem profiled_problem() {
  PlanningProblem problem = make_test_problem(
      {.actor = "llama3.2-1b", .critic = "llama3.2-1b", .devices = 1, .prompts = 8});
  problem.cluster.nodes.front().profile = "measured.json";
  return problem;
}

Profile profile_of(const std::string& model) {
  Profile profile;
  profile.gpu = *find_gpu("a100-80g");
  profile.precision = Precision::kBf16;
  profile.layers = {
      {ProfileOp::kLayerForward, layer_shape(*find_model(model)), 1, 1000, 100, 0.25}};
  return profile;
}

ReadText reader_of(const std::string& text) {
  return [text](const std::string& path) -> Result<std::string> {
    if (path != "measured.json") return not_found(path + ": cannot open");
    return text;
  };
}

Result<Calibration> with_text(const std::string& text, const PlanningProblem& problem) {
  return with_profiles(committed_calibration(), problem, reader_of(text));
}

std::string text_of(const Profile& profile) { return profile_json(profile).dump(); }

TEST(Measured, DevicesTakeTheProfilesTimes) {
  const PlanningProblem problem = profiled_problem();
  const auto calibration = with_text(text_of(profile_of("llama3.2-1b")), problem);
  ASSERT_TRUE(calibration.ok()) << calibration.status().message();
  const GpuSpec gpu = *find_gpu("a100-80g");
  const auto device = make_device(gpu, Precision::kBf16, "", *calibration);
  LayerPass pass;
  pass.tokens = 1000;
  pass.context = 100;
  EXPECT_DOUBLE_EQ(layer_forward_s(*find_model("llama3.2-1b"), pass, *device), 0.25);
  const auto other = make_device(*find_gpu("h100-80g"), Precision::kBf16, "", *calibration);
  EXPECT_LT(layer_forward_s(*find_model("llama3.2-1b"), pass, *other), 0.1);
  EXPECT_TRUE(pricing_notes(*calibration, problem).empty());
}

TEST(Measured, WithoutAProfileNothingChanges) {
  PlanningProblem problem = profiled_problem();
  problem.cluster.nodes.front().profile = "";
  EXPECT_EQ(*with_text("", problem), committed_calibration());
}

TEST(Measured, LayersThatWereNotMeasuredAreNamed) {
  PlanningProblem problem = profiled_problem();
  problem.models.at("critic").spec = {*find_model("llama2-7b")};
  const auto calibration = with_text(text_of(profile_of("llama3.2-1b")), problem);
  EXPECT_THAT(pricing_notes(*calibration, problem),
              ElementsAre(HasSubstr("a100-80g has no layers of the critic's shape (h4096")));
}

// A role whose size has no key has that of model.size, which is said of no other.
TEST(Measured, RolesWithoutASizeOfTheirOwnAreNamed) {
  PlanningProblem problem = profiled_problem();
  problem.graph = *make_graph(default_options("distill"));
  problem.models["teacher"] = problem.models.at("actor");
  EXPECT_TRUE(pricing_notes(committed_calibration(), problem).empty());
  problem.graph.roles.push_back({RoleId{"judge"}, false, false});
  EXPECT_THAT(pricing_notes(committed_calibration(), problem),
              ElementsAre(HasSubstr("role judge has the size of model.size")));
}

TEST(Measured, EnginesThatWereNeverMeasuredAreNamed) {
  PlanningProblem problem = profiled_problem();
  problem.train_engine = "megatron-bridge";
  problem.generate_engine = "nothing";
  EXPECT_THAT(
      pricing_notes(committed_calibration(), problem),
      ElementsAre(HasSubstr("plan.generate_engine: 'nothing' was not measured itself: priced as "
                            "the average engine; measured: aleph-alpha-scaling, ")));
  problem.train_engine = "megatron";
  problem.generate_engine = "vllm";
  EXPECT_THAT(pricing_notes(committed_calibration(), problem),
              ElementsAre(HasSubstr("priced as the average of engines built like it (megatron)")));
}

TEST(Measured, ErrorsNameTheFile) {
  PlanningProblem problem = profiled_problem();
  const auto failure = [&problem](const std::string& text) {
    const auto made = with_text(text, problem);
    EXPECT_EQ(made.status().code(), Code::kInvalidInput);
    return made.status().message();
  };
  EXPECT_THAT(failure("{"), HasSubstr("cluster.profile: measured.json: not valid JSON"));
  EXPECT_THAT(failure("{}"), HasSubstr("cluster.profile: measured.json: missing key 'gpu'"));
  Profile profile = profile_of("llama3.2-1b");
  profile.layers.front().seconds = -1;
  EXPECT_THAT(failure(text_of(profile)), HasSubstr("measured.json: layers[0]: 'seconds'"));
  profile = profile_of("llama3.2-1b");
  profile.precision = Precision::kF32;
  EXPECT_THAT(failure(text_of(profile)),
              HasSubstr("measured.json: was measured in f32, and the actor computes in bf16"));
  problem.cluster.nodes.front().profile = "elsewhere.json";
  EXPECT_THAT(with_text("", problem).status().message(), HasSubstr("elsewhere.json: cannot open"));
}

}  // namespace
}  // namespace braid::inline pricing
