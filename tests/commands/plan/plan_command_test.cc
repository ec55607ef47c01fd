// braid plan as a person runs it: plans and what is printed beside them, plans of other frameworks,
// and what is refused.
#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "base/json.h"
#include "base/testing.h"
#include "base/text.h"
#include "commands/plan/testing.h"
#include "pricing/profile.h"
#include "test_paths.h"

namespace braid {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string kSource = std::string(BRAID_SOURCE_DIR) + "/";
// PPO of 7B on one node: a second's search at most.
std::string config() {
  static const std::string path =
      write_temporary("config.yaml",
                      "algorithm: {name: ppo}\nmodel: {size: llama2-7b, dtype: bf16}\n"
                      "cluster: {gpu: a100-80g, nodes: 1, gpus_per_node: 8}\n"
                      "rollout: {prompts_per_step: 64, max_response_length: 384}\n"
                      "data: {max_prompt_length: 128}\n");
  return path;
}

// A plan after few units and without parts, so that a test takes no time.
CommandOutcome plan(const std::string& arguments, int units = 4) {
  return run_braid(cat("plan ", config(), " --layouts-only --max-units ", units, " ", arguments));
}

Json plan_json_of(const std::string& arguments, int units = 4) {
  const CommandOutcome ran = plan("--json " + arguments, units);
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
  return ran.exit_code == 0 ? Json::parse(ran.output) : Json();
}

// A name of the hub means the folder in its local cache, whose config.json says the sizes.
TEST(PlanCommand, TakesNamesOfTheHub) {
  const std::string cache = temporary("hub");
  const std::string model = cache + "/models--Org--Tiny/";
  run_shell(cat("mkdir -p ", model, "refs ", model, "snapshots/abc && printf abc > ", model,
                "refs/main && cp ", kSource, "tests/data/models/llama/config.json ", model,
                "snapshots/abc/"));
  const auto on_hub = [&](const char* command) {
    return run_shell(cat("HF_HUB_CACHE=", cache, " ", BRAID_BINARY, " ", command, " 2>&1"));
  };
  const std::string small = " 'cluster={gpu: a100-80g, nodes: 1, gpus_per_node: 1}'";
  const CommandOutcome planned =
      on_hub(cat("plan algorithm.name=grpo rollout.samples_per_prompt=2 --max-units 2 "
                 "model.path=Org/Tiny",
                 small)
                 .c_str());
  EXPECT_EQ(planned.exit_code, 0) << planned.output;
  for (const char* command : {"plan", "simulate"}) {
    const CommandOutcome missing = on_hub(cat(command, " model.path=Org/Other", small).c_str());
    EXPECT_EQ(missing.exit_code, 2) << missing.output;
    EXPECT_THAT(missing.output,
                AllOf(HasSubstr("model.path: Org/Other: "),
                      HasSubstr("fetch it: hf download Org/Other; or set model.size")));
  }
}

TEST(PlanCommand, PlansTheExamples) {
  for (const char* name : {"one_gpu_lora", "ppo_7b_8gpu", "heterogeneous"}) {
    SCOPED_TRACE(name);
    const std::string inside = cat("cd ", kSource, " && ", BRAID_BINARY, " plan examples/plans/",
                                   name, ".yaml --max-units 4 --json 2>&1");
    const CommandOutcome ran = run_shell(inside);
    ASSERT_EQ(ran.exit_code, 0) << ran.output;
    const Json found = Json::parse(ran.output);
    EXPECT_TRUE(found["fits"].get<bool>());
    EXPECT_LE(found["peak_gib"], found["limit_gib"]);
    EXPECT_GT(found["step_s"].get<double>(), 0);
    EXPECT_LE(found["lower_bound_s"].get<double>(), found["step_s"].get<double>() + 1e-6);
    EXPECT_EQ(found["calls"].size(), found["plan"]["calls"].size());
    EXPECT_FALSE(found["log"].empty());
  }
}

// As far to one side as to the other, in logarithms; not where the devices themselves were
// measured.
TEST(PlanCommand, SaysHowNearMeasuredStepsLayToTheirPrices) {
  const Json found = plan_json_of("", 1);
  const double step = found["step_s"], low = found["interval_s"][0], high = found["interval_s"][1];
  EXPECT_LT(low, 0.7 * step) << "that of engines that the fit has not seen";
  EXPECT_NEAR(low * high, step * step, 1e-6 * step * step);
  const Json own = plan_json_of("'cluster={gpu: this-machine, nodes: 1, gpus_per_node: 8}'", 1);
  EXPECT_FALSE(own.contains("interval_s"));
}

TEST(PlanCommand, TextSaysTimeMemoryBoundAndUnits) {
  const CommandOutcome ran = plan("");
  ASSERT_EQ(ran.exit_code, 0) << ran.output;
  EXPECT_THAT(ran.output,
              AllOf(HasSubstr("update_actor"), HasSubstr("\nstep  "), HasSubstr("\ninterval  "),
                    HasSubstr("\npeak memory  "), HasSubstr("\nlower bound  "),
                    HasSubstr("\nsearched       4 units")));
}

// The result is a function of the problem, the seed and the units completed.
TEST(PlanCommand, EqualUnitsGiveTheSamePlanForAnyThreads) {
  const auto result = [](const std::string& arguments) {
    Json found = plan_json_of(arguments, 24);
    found.erase("seconds");
    for (Json& entry : found["log"]) entry.erase("seconds");
    return found;
  };
  const Json one = result("--threads 1");
  EXPECT_EQ(one["units"], 24);
  EXPECT_EQ(one, result("--threads 1"));
  EXPECT_EQ(one, result("--threads 2"));
  EXPECT_EQ(one, result("--threads 5"));
  EXPECT_EQ(result("--seed 2")["seed"], 2);
}

TEST(PlanCommand, AnyTimeLimitGivesAPlan) {
  const CommandOutcome ran = run_braid(cat("plan ", config(), " --time-limit 1e-9 --json"));
  ASSERT_EQ(ran.exit_code, 0) << ran.output;
  EXPECT_EQ(Json::parse(ran.output)["units"], 1);  // the first descent finds one
}

TEST(PlanCommand, WhatItWritesIsReadBack) {
  const std::string file = temporary("out.yaml");
  const Json found = plan_json_of("--out " + file);
  const CommandOutcome ran = run_braid(cat("simulate ", config(), " --plan ", file, " --json"));
  ASSERT_EQ(ran.exit_code, 0) << ran.output;
  EXPECT_EQ(Json::parse(ran.output)["step_s"], found["step_s"]);
  const std::string json = write_temporary("out.json", found["plan"].dump());
  EXPECT_EQ(run_braid(cat("plan diff ", file, " ", json)).output, "the plans are equal\n");
}

TEST(PlanCommand, ComparesWithEveryBaseline) {
  const Json found = plan_json_of("--compare");
  std::vector<std::string> names;
  for (const Json& row : found["compare"]) {
    names.push_back(row["name"]);
    if (!row.contains("step_s") || !row["fits"].get<bool>()) continue;
    EXPECT_GE(row["step_s"].get<double>(), 0.97 * found["step_s"].get<double>()) << row;
  }
  EXPECT_THAT(names, ElementsAre("braid", "deepspeed-chat", "megatron", "real-heuristic",
                                 "nemo-aligner", "openrlhf", "verl", "hybridflow"));
  EXPECT_THAT(plan("--compare").output, AllOf(HasSubstr("ratio"), HasSubstr("busy %"),
                                              HasSubstr("peak GiB"), HasSubstr("generate")));
}

TEST(PlanCommand, ExplainsEveryCall) {
  const Json found = plan_json_of("--explain");
  ASSERT_EQ(found["explain"].size(), found["plan"]["calls"].size());
  for (const Json& call : found["explain"]) {
    EXPECT_FALSE(call["binds"].get<std::string>().empty()) << call;
    EXPECT_FALSE(call["next_best"].empty()) << call;
  }
  EXPECT_TRUE(found["predicted_lengths"].contains("possible"));
  EXPECT_EQ(found["training_beside_scoring"]["why_not"],
            "an epoch has one mini-batch (train.minibatches)");
  EXPECT_THAT(plan("--explain").output, AllOf(HasSubstr("limited by"), HasSubstr("next best")));
}

TEST(PlanCommand, ProposesWhatPlansMaySayBesideLayouts) {
  const std::string out = temporary("whole_plan.yaml");
  const auto found_with = [&out](const std::string& more) {
    const CommandOutcome ran = run_braid(cat("plan ", kSource, "examples/plans/ppo_7b_8gpu.yaml",
                                             " --max-units 1 --json --out ", out, more));
    EXPECT_EQ(ran.exit_code, 0) << ran.output;
    return ran.exit_code == 0 ? Json::parse(ran.output) : Json();
  };
  const Json found = found_with(" plan.staleness=1"), ahead = found["whole"];
  EXPECT_TRUE(ahead["pays"].get<bool>());
  EXPECT_LT(ahead["step_s"].get<double>(), 0.99 * ahead["without_s"].get<double>());
  EXPECT_GE(ahead["step_s"].get<double>(), ahead["lower_bound_s"].get<double>());
  EXPECT_EQ(ahead["parts"], "rollouts 1 step ahead");
  EXPECT_EQ(found["step_s"], ahead["step_s"]);
  EXPECT_EQ(found["plan"]["staleness"], 1);
  EXPECT_GE(found["step_s"], found["lower_bound_s"]);
  EXPECT_THAT(read_text(out), HasSubstr("staleness: 1"));
  // What is not allowed is not proposed.
  const Json synchronous = found_with("");
  EXPECT_LE(synchronous["whole"]["step_s"].get<double>(),
            synchronous["whole"]["without_s"].get<double>());
  EXPECT_GE(synchronous["step_s"], synchronous["lower_bound_s"]);
  EXPECT_THAT(read_text(out), Not(HasSubstr("staleness: 1")));
}

TEST(PlanCommand, SaysWhatWasSearchedAndWhatNot) {
  const std::string whole = cat("plan ", config(), " --max-units 1 ");
  EXPECT_THAT(
      run_braid(whole).output,
      AllOf(HasSubstr("\n               then fused updates, a hand-over, predicted lengths, "
                      "weights that come over beside training, in "),
            HasSubstr("\nnot searched   rollouts ahead (plan.staleness is 0)\n"),
            HasSubstr("\nparts          "), HasSubstr("; with fusions ")));
  EXPECT_THAT(plan("", 1).output,
              AllOf(HasSubstr("\nnot searched   fused updates, a hand-over, predicted lengths"),
                    HasSubstr("(--layouts-only)\n"), Not(HasSubstr("\nparts  "))));
  EXPECT_THAT(plan("algorithm.name=sft", 1).output, Not(HasSubstr("not searched")));
  EXPECT_FALSE(plan_json_of("", 1).contains("whole"));
  // No time is left for them.
  EXPECT_THAT(run_braid(cat("plan ", config(), " --time-limit 1e-9")).output,
              AllOf(HasSubstr("not searched   fused updates, a hand-over, predicted lengths, "
                              "weights that come over beside training (--time-limit: no time was "
                              "left)"),
                    Not(HasSubstr("\nparts  "))));
}

TEST(PlanCommand, NamesTheSearchesOfItsGraph) {
  const std::string grpo = cat("plan ", config(), " algorithm.name=grpo ",
                               "rollout.samples_per_prompt=2 train.minibatches=2 --max-units 1 ");
  EXPECT_THAT(run_braid(grpo).output,
              HasSubstr("\n               then a hand-over, predicted lengths, "
                        "training beside scoring, in "));
  EXPECT_THAT(run_braid(grpo + "--layouts-only --explain").output,
              AllOf(HasSubstr("\nnot searched   a hand-over, predicted lengths, "
                              "training beside scoring (--layouts-only)"),
                    HasSubstr("\ntraining beside scoring: ")));
}

// Rollouts ahead are either among what was not searched, or something is said of them.
TEST(PlanCommand, SaysNothingOfRolloutsThatItHasNotSearched) {
  const auto run = [](const std::string& more) {
    return run_braid(cat("plan ", config(), " plan.staleness=1 ", more)).output;
  };
  const auto listed = HasSubstr("rollouts ahead (--");
  const auto told = AnyOf(HasSubstr("\nstaleness: "), HasSubstr("\nstay synchronous: "));
  for (const char* quick : {"--layouts-only --max-units 1", "--time-limit 1e-9"}) {
    EXPECT_THAT(run(quick), AllOf(listed, Not(told))) << quick;
    EXPECT_THAT(run(cat(quick, " --explain")), AllOf(Not(listed), told)) << quick;
  }
  EXPECT_THAT(run("--max-units 1"), AllOf(Not(listed), told));
}

// The result of the whole search too is a function of the problem, the seed and the units.
TEST(PlanCommand, PartsAreThoseOfAnyThreads) {
  const auto result = [](const std::string& threads) {
    const CommandOutcome ran =
        run_braid(cat("plan ", config(), " --max-units 2 --json --threads ", threads));
    Json found = Json::parse(ran.output);
    found.erase("seconds");
    found["whole"].erase("seconds");
    found["beyond_train"].erase("seconds");
    for (Json& entry : found["log"]) entry.erase("seconds");
    return found;
  };
  const Json one = result("1");
  EXPECT_EQ(one, result("1"));
  EXPECT_EQ(one, result("3"));
}

TEST(PlanCommand, WhatIfPlansAgain) {
  const Json found = plan_json_of("--what-if cluster.nodes=2 model.dtype=bf16");
  const Json& other = found["what_if"];
  EXPECT_EQ(other["plan"]["devices"], 16);
  EXPECT_EQ(found["plan"]["devices"], 8);
  EXPECT_LT(other["step_s"], found["step_s"]);
  EXPECT_DOUBLE_EQ(other["ratio"].get<double>(),
                   other["step_s"].get<double>() / found["step_s"].get<double>());
  EXPECT_EQ(other["changes"], Json({"cluster.nodes=2", "model.dtype=bf16"}));
  EXPECT_THAT(plan("--what-if cluster.nodes=2").output, HasSubstr("what if cluster.nodes=2: step"));
}

TEST(PlanCommand, SaysWhenNothingIsToBeGained) {
  const std::string file = temporary("best.yaml");
  plan_json_of("--out " + file);
  EXPECT_THAT(plan("plan.file=" + file).output, HasSubstr("nothing to gain"));
  const Json given = plan_json_of("plan.file=" + file)["given"];
  EXPECT_TRUE(given["nothing_to_gain"].get<bool>());
  const CommandOutcome worse = plan("'parallel={dp: 1, tp: 8, micro_batches: 4}'");
  EXPECT_THAT(worse.output, Not(HasSubstr("nothing to gain")));
  EXPECT_THAT(worse.output, HasSubstr("gain  "));
}

TEST(PlanCommand, KeepsWhatTheConfigurationFixes) {
  const Json free = plan_json_of("'parallel={generate: {tp: 2}}'");
  const Json kept = plan_json_of("'parallel={generate: {tp: 2}}' --keep");
  EXPECT_NE(free["plan"]["calls"][0]["tp"], 2);
  EXPECT_EQ(kept["plan"]["calls"][0]["tp"], 2);
  const Json placed = plan_json_of("'placement={critic: 6-7}' --keep");
  for (const Json& call : placed["plan"]["calls"]) {
    const std::string name = call["call"];
    if (name != "values" && name != "update_critic") continue;
    EXPECT_EQ(call["mesh"], Json({6, 7})) << name;
  }
}

TEST(PlanCommand, ShowsTheDifferencesOfPlans) {
  const std::string a = write_temporary("a.yaml",
                                        "graph: sft\ndevices: 8\ncalls:\n"
                                        "  update_actor: {mesh: 0-7, dp: 8, tp: 1}\n");
  const std::string b = write_temporary("b.yaml",
                                        "graph: sft\ndevices: 8\ncalls:\n"
                                        "  update_actor: {mesh: 0-7, dp: 4, tp: 2}\n"
                                        "roles:\n  actor: {optimizer: host}\n");
  const CommandOutcome ran = run_braid(cat("plan diff ", a, " ", b));
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.output,
            "update_actor: dp: 8 -> 4\nupdate_actor: tp: 1 -> 2\n"
            "role actor: optimizer: device -> host\n");
  EXPECT_EQ(run_braid(cat("plan diff ", a, " ", a)).output, "the plans are equal\n");
}

// ---- Measured devices

// A profile of a device on which every pass takes `factor` times as long as on another.
std::string write_profile(const std::string& name, double factor) {
  Profile profile;
  profile.gpu = *find_gpu("this-machine");
  profile.gpu.hbm_bytes = 64e9;
  profile.precision = Precision::kF32;
  const std::string shape = layer_shape(*find_model("llama3.2-1b"));
  for (const ProfileOp op : {ProfileOp::kLayerForward, ProfileOp::kLayerBackward,
                             ProfileOp::kHeadForward, ProfileOp::kHeadBackward})
    profile.layers.push_back({op, shape, 1, 1000, 100, 0.1 * factor});
  profile.layers.push_back({ProfileOp::kLayerDecode, shape, 1, 4, 100, 0.01 * factor});
  return write_temporary(name, profile_json(profile).dump());
}

std::string measured_machine(const std::string& profile) {
  return cat(" model.size=llama3.2-1b model.dtype=f32 algorithm.name=grpo",
             " rollout.samples_per_prompt=2 rollout.prompts_per_step=8",
             " 'cluster={profile: ", profile, "}'");
}

TEST(PlanCommand, PricesFollowTheProfile) {
  const std::string once = measured_machine(write_profile("once.json", 1)),
                    twice = measured_machine(write_profile("twice.json", 2));
  const Json a = plan_json_of(once), b = plan_json_of(twice);
  EXPECT_EQ(a["notes"], Json::array());
  EXPECT_EQ(a["plan"]["devices"], 1);
  const std::string same = temporary("same.yaml");
  plan_json_of(once + " --out " + same);
  const auto simulated = [&same](const std::string& machine) {
    const CommandOutcome ran =
        run_braid(cat("simulate ", config(), machine, " --plan ", same, " --json"));
    EXPECT_EQ(ran.exit_code, 0) << ran.output;
    return Json::parse(ran.output)["calls"];
  };
  const Json first = simulated(once), second = simulated(twice);
  for (const char* call : {"generate", "old_logprob", "ref_logprob", "update_actor"}) {
    EXPECT_NEAR(second[call]["busy_s"].get<double>() / first[call]["busy_s"].get<double>(), 2, 0.1)
        << call;
    EXPECT_GT(b["calls"][call].get<double>(), 1.5 * a["calls"][call].get<double>()) << call;
  }
}

TEST(PlanCommand, SaysWhichLayersWereNotMeasured) {
  const std::string profile = write_profile("gap.json", 1);
  const CommandOutcome ran =
      plan(measured_machine(profile) + " model.size=tinyllama-1.1b --threads 1");
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
  EXPECT_THAT(ran.output,
              HasSubstr("note: the profile of this-machine has no layers of the actor"));
}

// ---- Other frameworks

const std::string kVerl = kSource + "fuzz/seeds/foreign/verl.sh";
const std::string kOpenRlhf = kSource + "fuzz/seeds/foreign/openrlhf.sh";

TEST(PlanCommand, ImportsOtherFrameworks) {
  for (const auto& [name, file] : {std::pair("verl", kVerl), std::pair("openrlhf", kOpenRlhf)}) {
    const std::string import = cat("plan --import ", name, " ", file, " --gpu a100-80g ",
                                   "--response-length '{mean: 300, sigma: 0.5}' ");
    const CommandOutcome text = run_braid(import);
    ASSERT_EQ(text.exit_code, 0) << text.output;
    EXPECT_THAT(text.output, AllOf(HasSubstr("\ngenerate "), HasSubstr("\nstep "),
                                   HasSubstr("\npeak memory "), HasSubstr("to spare")));
    const Json priced = Json::parse(run_braid(import + "--json").output);
    EXPECT_GT(priced["step_s"].get<double>(), 0);
    EXPECT_EQ(priced["calls"].size(), priced["plan"]["calls"].size());
    const size_t devices = priced["plan"]["devices"];
    for (const auto& [call, peaks] : priced["peak_gib_by_device"].items()) {
      EXPECT_EQ(peaks.size(), devices) << call;
      for (const Json& peak : peaks) EXPECT_LE(peak, priced["peak_gib"]) << call;
    }
    EXPECT_EQ(priced["peak_gib_by_device"].size(), priced["calls"].size());
    double before_s = priced["step_s"];
    for (const Json& change : priced["changes"]) {  // of one key, of two, of any number
      EXPECT_LE(change["step_s"].get<double>(), before_s);
      EXPECT_TRUE(change["fits"].get<bool>());
      before_s = change["step_s"];
    }
  }
}

// On twice the devices the micro-batch of the file does not divide what each gets.
const std::string kSmaller = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=5 ";

// An announced change, given as an override, costs what was announced.
TEST(PlanCommand, AnnouncedChangesHold) {
  const std::string import =
      cat("plan --import verl ", kVerl, " --gpu a100-80g --json trainer.nnodes=2 ", kSmaller);
  const Json priced = Json::parse(run_braid(import).output);
  ASSERT_FALSE(priced["changes"].empty());
  const Json& change = priced["changes"].back();
  std::string overrides;
  for (const auto& [key, value] : change["keys"].items())
    overrides += cat(key, "=", value.get<std::string>(), " ");
  const Json changed = Json::parse(run_braid(import + overrides).output);
  EXPECT_DOUBLE_EQ(changed["step_s"].get<double>(), change["step_s"].get<double>());
  EXPECT_LT(changed["step_s"], priced["step_s"]);
}

TEST(PlanCommand, OverridesOfAnImportCount) {
  const std::string import = cat("plan --import verl ", kVerl, " --gpu a100-80g --json ");
  const Json one = Json::parse(run_braid(import).output),
             two = Json::parse(run_braid(import + "trainer.nnodes=2 " + kSmaller).output);
  EXPECT_EQ(one["plan"]["devices"], 8);
  EXPECT_EQ(two["plan"]["devices"], 16);
  EXPECT_LT(two["step_s"], one["step_s"]);
}

// More is generated than is trained on, and nothing but the policy is scored.
TEST(PlanCommand, FilteredGroupsOfAnImportArePriced) {
  const std::string import =
      cat("plan --import verl ", kVerl, " --gpu a100-80g --json --no-changes ",
          "algorithm.adv_estimator=grpo algorithm.use_kl_in_reward=False ",
          "actor_rollout_ref.actor.use_kl_loss=False ");
  const CommandOutcome all = run_braid(import),
                       filtered = run_braid(
                           import + "algorithm.filter_groups.enable=True data.gen_batch_size=3072");
  ASSERT_EQ(all.exit_code, 0) << all.output;
  ASSERT_EQ(filtered.exit_code, 0) << filtered.output;
  EXPECT_GT(Json::parse(filtered.output)["step_s"], Json::parse(all.output)["step_s"]);
}

TEST(PlanCommand, ExportsToOtherFrameworks) {
  const CommandOutcome verl = plan("--export verl");
  EXPECT_EQ(verl.exit_code, 0);
  EXPECT_THAT(verl.output, AllOf(HasSubstr("data.train_batch_size=64\n"),
                                 HasSubstr("rollout.tensor_model_parallel_size="),
                                 HasSubstr("# not expressed: ")));
  const std::string file = write_temporary("exported.sh", verl.output);
  const CommandOutcome back = run_braid(cat("plan --import verl ", file, " --gpu a100-80g --json"));
  EXPECT_EQ(back.exit_code, 0) << back.output;
  EXPECT_THAT(plan("--export openrlhf").output, HasSubstr("--vllm.tensor_parallel_size "));
  const Json with = plan_json_of("--export verl")["export"];
  EXPECT_THAT(with["text"].get<std::string>(), HasSubstr("data.train_batch_size=64\n"));
  EXPECT_FALSE(with["not_expressed"].empty());
}

// ---- What is refused

struct Refused {
  std::string arguments;  // of braid
  std::string message;
};

void expect_refused(const std::vector<Refused>& cases) {
  for (const Refused& bad : cases) {
    const CommandOutcome ran = run_braid(bad.arguments);
    EXPECT_EQ(ran.exit_code, 2) << bad.arguments << ": " << ran.output;
    EXPECT_THAT(ran.output, StartsWith("braid: error: ")) << bad.arguments;
    EXPECT_THAT(ran.output, HasSubstr(bad.message)) << bad.arguments;
    EXPECT_EQ(std::count(ran.output.begin(), ran.output.end(), '\n'), 1) << ran.output;
  }
}

std::string with(const std::string& arguments) {
  return cat("plan ", config(), " --layouts-only --max-units 2 ", arguments);
}

// The number of nodes in "holds it: 3 nodes of 8 x a100-80g".
int nodes_named(const std::string& message) {
  const std::string before = "the smallest cluster of these nodes that holds it: ";
  const size_t at = message.find(before);
  return at == std::string::npos ? 0 : std::stoi(message.substr(at + before.size()));
}

TEST(PlanCommand, ModelThatFitsNowhereNamesTheSmallestCluster) {
  const std::string large = with("model.size=llama2-70b");
  const CommandOutcome refused = run_braid(large);
  EXPECT_EQ(refused.exit_code, 2) << refused.output;
  const int nodes = nodes_named(refused.output);
  ASSERT_GT(nodes, 1) << refused.output;
  EXPECT_EQ(run_braid(cat(large, " cluster.nodes=", nodes)).exit_code, 0);
  EXPECT_EQ(run_braid(cat(large, " cluster.nodes=", nodes - 1)).exit_code, 2);
  expect_refused({{with("--what-if model.size=llama2-70b"),
                   cat("that holds it: ", nodes, " nodes of 8 x a100-80g")},
                  {with("plan.memory_limit_gib=3"), "fits on no mesh of the cluster"},
                  {with("--keep 'placement={actor: 0-0}'"), "without --keep there is one"},
                  {with("plan.memory_limit_gib=0.5"), "raise plan.memory_limit_gib"}});
}

TEST(PlanCommand, RefusesImpossibleMeshesAndSizes) {
  expect_refused(
      {{with("cluster.nodes=0"), "nodes must be a whole number from 1"},
       {with("cluster.gpus_per_node=17"), "gpus_per_node must be a whole number from 1 to 16"},
       {with("cluster.gpu=a100-81g"), "did you mean 'a100-80g'?"},
       {with("'cluster={nodes: []}'"), "a cluster needs at least one node"},
       {with("'placement={actor: 4-20}'"), "device 8 does not exist"},
       {with("'placement={actor: node 3}'"), "the cluster has nodes 0-0"},
       {with("placement=nonsense"), "'nonsense' is no placement"},
       {with("'parallel={tp: 3}'"), "nearest legal value: tp 4"},
       {with("'parallel={dp: 8, tp: 4}'"), "must equal the 8 devices"},
       {with("'parallel={tp: 3}' --keep"), "nearest legal value: tp 4"},
       {with("train.minibatches=7"), "nearest legal values: 4 and 8"},
       {with("rollout.prompts_per_step=0"), "at least 1"},
       {with("plan.memory_limit_gib=nan"), "finite number"},
       {with("plan.memory_limit_gib=-1"), "at least 0"},
       {with("'workload.response_length={mean: -3}'"), "must be a positive number"},
       {with("'workload.response_length={mean: 30, sigma: nan}'"), "sigma"}});
}

TEST(PlanCommand, RefusesPlansForAnotherClusterOrGraph) {
  const std::string of_64 = kPlans + "ppo_70b_64gpu.plan.yaml";
  const std::string of_grpo = kPlans + "one_gpu_lora.plan.yaml";
  const std::string far = write_temporary("far.yaml",
                                          "graph: ppo\ndevices: 8\ncalls:\n"
                                          "  generate: {mesh: 6-9, dp: 4, tp: 1, pp: 1}\n");
  expect_refused({{with("plan.file=" + of_64), "ppo_70b_64gpu.plan.yaml:"},
                  {with("plan.file=" + of_grpo), "grpo"},
                  {with("plan.file=" + far), "device 8 does not exist"},
                  {cat("simulate ", config(), " --plan ", of_64), "the cluster has nodes 0-0"},
                  {cat("simulate ", config(), " --plan ", of_grpo), "grpo"}});
}

TEST(PlanCommand, RefusesMalformedFiles) {
  const std::string yaml = write_temporary("broken.yaml", "model: {size: [\n");
  const std::string json = write_temporary("broken.json", "{\"calls\": ");
  const std::string twice = write_temporary("twice.yaml", "model: {size: a}\nmodel: {size: b}\n");
  const std::string fields = write_temporary("fields.json", "{\"graph\": 3}");
  const std::string list = write_temporary("list.yaml", "- 1\n- 2\n");
  expect_refused({{"plan " + yaml, "broken.yaml:2: not valid YAML"},
                  {"plan " + twice, "twice.yaml:2"},
                  {"plan " + list, "list.yaml"},
                  {"plan /nowhere/c.yaml", "/nowhere/c.yaml: cannot open"},
                  {with("plan.file=" + yaml), "broken.yaml:2: not valid YAML"},
                  {with("plan.file=/nowhere/p.yaml"), "/nowhere/p.yaml: cannot open"},
                  {with("plan.graph=" + yaml), "broken.yaml:2: not valid YAML"},
                  {with("model.size=" + json), "broken.json: not valid JSON"},
                  {cat("plan diff ", json, " ", yaml), "broken.json: not valid JSON"},
                  {cat("plan diff ", fields, " ", yaml), "fields.json: "},
                  {cat("plan diff ", yaml, " ", json), "broken.yaml:2: not valid YAML"},
                  {cat("simulate ", config(), " --plan ", yaml), "broken.yaml:2: not valid YAML"},
                  {cat("plan --import verl ", yaml, " --gpu a100-80g"), "not valid YAML"}});
}

TEST(PlanCommand, RefusesProfilesThatDoNotFit) {
  const std::string profile = write_profile("refused.json", 1);
  const std::string bad = write_temporary("bad_profile.json", "{\"gpu\": ");
  const std::string none = write_temporary("no_profile.json", "{\"layers\": []}");
  expect_refused(
      {{with("'cluster={profile: /nowhere/p.json}'"), "/nowhere/p.json: cannot open"},
       {with("'cluster={profile: " + bad + "}'"), "bad_profile.json: not valid JSON"},
       {with("'cluster={profile: " + none + "}'"), "no_profile.json: missing key 'gpu'"},
       {with("cluster.profile=" + profile), "measured on this-machine, and gpu is a100-80g"},
       {with("model.dtype=bf16 'cluster={profile: " + profile + "}'"), "was measured in f32"},
       {cat("simulate ", config(), " 'cluster={profile: ", none, "}'"), "missing key 'gpu'"}});
}

TEST(PlanCommand, SaysThatAnEngineWasNeverMeasured) {
  EXPECT_THAT(plan("plan.train_engine=nothing").output,
              HasSubstr("note: plan.train_engine: 'nothing' was not measured itself"));
  EXPECT_THAT(plan("plan.generate_engine=vllm").output, Not(HasSubstr("note: ")));
}

TEST(PlanCommand, NamesKeysThatThePlanDoesNotFollow) {
  const std::string set = "rollout.longest_first=true train.seed=3";
  EXPECT_THAT(plan(set).output, AllOf(HasSubstr("note: rollout.longest_first: not priced ("),
                                      Not(HasSubstr("train.seed"))));
  const Json keys = plan_json_of(set)["keys"];
  EXPECT_EQ(keys["not_priced"][0]["key"], "rollout.longest_first");
  EXPECT_EQ(keys["without_effect"][0]["key"], "train.seed");
}

TEST(PlanCommand, TakesACalibrationAsSimulateDoes) {
  const std::string slow = write_temporary("slow.json", R"({"offsets": {"rl_train_factor": 1.0}})");
  const std::string out = temporary("slow_plan.yaml");
  const Json found = plan_json_of(cat("--calibration ", slow, " --out ", out));
  EXPECT_GT(found["step_s"], plan_json_of("")["step_s"]);
  const CommandOutcome simulated =
      run_braid(cat("simulate ", config(), " --plan ", out, " --calibration ", slow, " --json"));
  EXPECT_NEAR(Json::parse(simulated.output)["step_s"].get<double>(), found["step_s"].get<double>(),
              1e-9);
}

// libtorch takes longer to load than most commands take to run.
TEST(PlanCommand, StartsWithoutLibtorch) {
  const CommandOutcome libraries = run_shell(cat("ldd ", BRAID_BINARY, " 2>&1"));
  ASSERT_EQ(libraries.exit_code, 0) << libraries.output;
  EXPECT_THAT(libraries.output, Not(HasSubstr("libtorch")));
}

TEST(PlanCommand, SaysThatAGpuIsPricedInF32) {
  EXPECT_THAT(plan("model.dtype=f32").output, HasSubstr("note: priced in f32"));
}

TEST(PlanCommand, RefusesUnknownKeysAndArguments) {
  expect_refused(
      {{with("modl.size=x"), "unknown key 'modl' (did you mean 'model'?)"},
       {with("cluster.gpuz=h200"), "unknown key 'gpuz' (did you mean 'gpu'?)"},
       {with("'parallel={tpp: 2}'"), "tpp"},
       {with("--what-if foo=1"), "unknown key 'foo'"},
       {with("--what-if cluster.nodes"), "--what-if cluster.nodes: write KEY=VALUE"},
       {with("model.size=nothing"), "unknown model 'nothing'"},
       {cat("plan ", config(), " --max-units 0"), "--max-units must be at least 1"},
       {cat("plan ", config(), " --max-units x"), "--max-units"},
       {with("--time-limit nan"), "--time-limit must be a positive number"},
       {with("--threads -1"), "--threads must be 1 to 1024"},
       {with("--nonsense"), "--nonsense"},
       {with("--out /nowhere/p.yaml"), "--out: /nowhere/p.yaml: there is no folder"},
       {with("--fused-out /nowhere/p.yaml"), "--fused-out: /nowhere/p.yaml: there is no"},
       {"fuse none.json --plot /nowhere/p.svg", "--plot: /nowhere/p.svg: there is no"},
       {"search-table none.json --out /nowhere/p.json", "--out: /nowhere/p.json: there"},
       {"calibrate none.csv --report /nowhere/p.txt", "--report: /nowhere/p.txt: there"},
       {"validate none.csv --json /nowhere/p.json", "--json: /nowhere/p.json: there is"},
       {"plan", "give a configuration file"},
       {cat("plan diff ", config()), "At least 2 required"}});
}

TEST(PlanCommand, RefusesBadImports) {
  const auto import = [](const std::string& arguments) {
    return cat("plan --import verl ", kVerl, " ", arguments);
  };
  expect_refused(
      {{import(""), "name it with --gpu, such as h100-80g"},
       {import("--gpu h101"), "unknown gpu 'h101'"},
       {import("--gpu h100-80g foo"), "write key=value"},
       {import("--gpu h100-80g trainer.nnodes=x"), "trainer.nnodes: must be a whole number"},
       {import("--gpu h100-80g trainer.nnodess=2"), "did you mean 'trainer.nnodes'?"},
       {import("--gpu h100-80g --response-length '{mean: nan}'"), "must be a positive number"},
       {import("--gpu h100-80g --prompt-length '['"), "--prompt-length:1: not valid YAML"},
       {import("--gpu h100-80g --compare"), "--compare does not go with --import"},
       {import("--gpu h100-80g --out p.yaml"), "--out does not go with --import"},
       {cat("plan --import trlx ", kVerl, " --gpu h100-80g"), "known: verl, openrlhf"},
       {"plan --import verl --gpu h100-80g", "name the configuration to read"},
       {"plan --import verl /nowhere/run.sh --gpu h100-80g", "/nowhere/run.sh: cannot open"},
       {with("--gpu h100-80g"), "--gpu belongs to --import"},
       {with("--export trlx"), "known: verl, openrlhf"}});
}

}  // namespace
}  // namespace braid
