// Updates that begin with what has finished when a generation is handed over.
#include "program/streamed_update.h"

#include <gmock/gmock.h>

#include "program/call_parts.h"
#include "program/early_update_testing.h"
#include "program/expand.h"

namespace braid::inline program {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Training on the first half of the devices, generation on the other.
ExecutionPlan apart(const PlanningProblem& problem,
                    const std::vector<std::string>& first_half = {"update_actor", "old_logprob"}) {
  ExecutionPlan plan = in_halves(problem, first_half, 0);
  plan.fusion.migrate_below_samples = 8;
  plan.fusion.train_beside_generation = true;
  return plan;
}

CallId call_of(const Program& program, const std::string& name) {
  for (size_t i = 0; i < program.graph.calls.size(); ++i)
    if (program.graph.calls[i].name == name) return CallId{static_cast<int32_t>(i)};
  ADD_FAILURE() << "no call " << name;
  return {-1};
}

std::vector<OpKind> kinds_of(const Program& program, CallId call, SamplePart part, int rank) {
  std::vector<OpKind> out;
  for (const Instruction& i : program.ranks[rank].instructions)
    if (i.call == call && i.part == part && !stands_between_calls(i.kind)) out.push_back(i.kind);
  return out;
}

TEST(StreamedUpdate, ListsSayWhatComesBeforeTheRest) {
  const PlanningProblem problem = scored_beside(4, 2);
  const auto program = compile(apart(problem), problem);
  ASSERT_TRUE(program.ok()) << program.status().message();
  const StreamedUpdate& streamed = program->scoring.streamed;
  EXPECT_EQ(streamed.update, call_of(*program, "update_actor"));
  EXPECT_THAT(kinds_of(*program, streamed.update, SamplePart::kEarly, 0),
              ElementsAre(OpKind::kRegionBegin, OpKind::kPasses, OpKind::kRegionEnd));
  EXPECT_THAT(kinds_of(*program, streamed.update, SamplePart::kLate, 0),
              ElementsAre(OpKind::kRegionBegin, OpKind::kPasses, OpKind::kReduce, OpKind::kAgree,
                          OpKind::kUpdate, OpKind::kRegionEnd));
  // Before the share in which all hear what was generated, and what that is worth.
  const std::string text = program_text(*program);
  const size_t early = text.find("passes update_actor, early samples");
  EXPECT_LT(early, text.find("share "
                             "reward"));
  EXPECT_LT(early, text.find("passes update_actor, late samples"));
  EXPECT_THAT(text, HasSubstr("region_begin update_actor (train_step actor policy) until "
                              "minibatches_done, early samples after"));
  EXPECT_THAT(text, HasSubstr("advantages of early samples of advantages"));
  // The ranks that train ask for rewards of what they begin with.
  EXPECT_THAT(program->calls[streamed.reward.value].mesh.devices,
              ElementsAre(DeviceId{2}, DeviceId{3}, DeviceId{0}, DeviceId{1}));
  EXPECT_NE(program_hash(*program), [&] {
    ExecutionPlan plain = apart(problem);
    plain.fusion.train_beside_generation = false;
    return program_hash(*compile(plain, problem));
  }());
}

TEST(StreamedUpdate, SaysWhatIsInTheWay) {
  const auto refusal = [](const PlanningProblem& problem, const ExecutionPlan& plan) {
    return compile(plan, problem).status().message();
  };
  PlanningProblem problem = scored_beside(4, 2);
  ExecutionPlan plan = in_halves(problem, {"update_actor", "generate"}, 0);
  plan.fusion.migrate_below_samples = 8, plan.fusion.train_beside_generation = true;
  EXPECT_THAT(
      refusal(problem, plan),
      HasSubstr("fusion.train_beside_generation: update_actor shares devices with generate"));
  plan = apart(problem);
  plan.fusion.migrate_below_samples = 0;
  EXPECT_THAT(refusal(problem, plan), HasSubstr("migrate_below_samples is 0"));
  plan = apart(problem);
  plan.fusion.train_beside_scoring = 1;
  EXPECT_THAT(refusal(problem, plan), HasSubstr("not available with fusion.train_beside_scoring"));
  plan = apart(problem);
  plan.roles = {{RoleId{"actor"}, Residency::kHost}};
  EXPECT_THAT(refusal(problem, plan), HasSubstr("the weights of actor rest on the host"));
  plan = apart(problem);
  for (CallPlan& call : plan.calls)
    if (call.call == "ref_logprob") call.strategy.zero_stage = 3;
  EXPECT_THAT(refusal(problem, plan),
              HasSubstr("update_actor reads what ref_logprob says, which does not score"));
  PlanningProblem other = problem;
  other.leaves_out_truncated = true;
  EXPECT_THAT(refusal(other, apart(other)), HasSubstr("algorithm.mask_truncated"));
  other = problem;
  other.rewards_together = true;
  EXPECT_THAT(refusal(other, apart(other)), HasSubstr("about all samples of a step together"));
  for (Call& call : other.graph.calls) call.groups_alone = false;
  other.rewards_together = false;
  EXPECT_THAT(refusal(other, apart(other)), HasSubstr("advantages looks at all samples"));
  const PlanningProblem ppo = make_test_problem({.devices = 4, .prompts = 8});
  EXPECT_THAT(refusal(ppo, apart(ppo, {"update_actor", "update_critic"})),
              HasSubstr("several calls of kind train_step, update_critic and update_actor"));
}

// Eight groups of two samples in two mini-batches; the generation is handed over twice.
class StreamedParts : public testing::Test {
 protected:
  StreamedParts() {
    PlanningProblem problem = scored_beside(8, 2);
    ExecutionPlan plan = apart(problem);
    plan.fusion.migrate_again_below = {3};
    program_ = *compile(plan, problem);
    for (int32_t row = 0; row < 16; ++row)
      samples_.push_back({SampleId{row}, GroupId{row / 2}, 5, 3 + row * 7 % 11});
    strategy_ = program_.calls[program_.scoring.streamed.update.value].strategy;
    strategy_.micro_tokens = 40;
    options_.trains = true, options_.minibatches = 2;
    HandOver first, second;
    first.goes_on = {true, false}, second.goes_on = {true, false};
    for (const int32_t row : {0, 1, 2, 4, 5, 8, 9, 12, 14, 15}) first.early.push_back(row);
    for (const int32_t row : {3, 6, 7}) second.early.push_back(row);
    handed_ = {first, second};
  }
  // The group 0, 2, 4 and 7 had finished at the first, 1 and 3 at the second.
  static size_t hand_over_of_group(int64_t group) {
    if (group == 0 || group == 2 || group == 4 || group == 7) return 0;
    return group == 1 || group == 3 ? 1 : 2;
  }
  std::vector<Partition> parts(const std::vector<HandOver>& handed) const {
    std::vector<Partition> out;
    const Partition whole = partition_samples(samples_, strategy_, options_);
    for (int part = 1; part <= 3; ++part)
      out.push_back(partition_streamed(program_, {whole, samples_, strategy_, options_},
                                       static_cast<SamplePart>(part), handed));
    return out;
  }

  Program program_;
  std::vector<PartitionSample> samples_;
  Strategy strategy_;
  PartitionOptions options_;
  std::vector<HandOver> handed_;
};

TEST_F(StreamedParts, HaveEverySampleOfTheFirstMiniBatchOnce) {
  const Partition whole = partition_samples(samples_, strategy_, options_);
  const std::vector<Partition> parts = this->parts(handed_);
  std::multiset<int32_t> trained;
  bool begun = false;
  for (size_t part = 0; part < parts.size(); ++part) {
    ASSERT_FALSE(parts[part].minibatches.empty());
    const MiniBatch& batch = parts[part].minibatches.front();
    EXPECT_EQ(batch.begun, begun);
    EXPECT_EQ(batch.goes_on, part < 2);
    EXPECT_EQ(batch.totals.samples, 8);
    for (const auto& of_rank : batch.micro_batches)
      for (const SampleRows& rows : of_rank)
        for (const int32_t row : rows) {
          EXPECT_EQ(hand_over_of_group(samples_[row].group.value), part);
          trained.insert(row);
        }
    begun = true;
  }
  const SampleRows& first = whole.minibatches.front().rows;
  EXPECT_EQ(trained, std::multiset<int32_t>(first.begin(), first.end()));
  EXPECT_EQ(parts[2].minibatches.front().totals, whole.minibatches.front().totals);
  EXPECT_EQ(parts[2].minibatches.front().rows, first);
  EXPECT_EQ(parts[2].minibatches[1], whole.minibatches[1]);
  const Partition joined = joined_streamed(parts);
  EXPECT_EQ(joined.minibatches.size(), 2);
  EXPECT_EQ(joined.owned.size(), 2);
}

TEST_F(StreamedParts, WhereNothingHasFinishedTheLastHasAll) {
  for (HandOver& handed : handed_) handed.early = {0, 2, 4};
  handed_[1].early.clear();
  const std::vector<Partition> parts = this->parts(handed_);
  EXPECT_THAT(parts[0].minibatches, IsEmpty());
  EXPECT_THAT(parts[1].minibatches, IsEmpty());
  EXPECT_EQ(parts[2], partition_samples(samples_, strategy_, options_));
}

// Where samples were dropped or memory ran out since, the last part has all of them.
TEST_F(StreamedParts, AreDoneAgainWhereSamplesWereDropped) {
  StepParts step;
  step.handed = handed_;
  const PartitionedCall update{program_.scoring.streamed.update, samples_, strategy_, options_};
  EXPECT_TRUE(partition_part(program_, update, SamplePart{3}, step).minibatches.front().begun);
  std::vector<bool> kept(16, true);
  EXPECT_FALSE(retained(step, kept).at_once);
  kept[11] = false;
  step = retained(step, kept);
  EXPECT_TRUE(step.at_once);
  EXPECT_EQ(partition_part(program_, update, SamplePart{3}, step),
            partition_samples(samples_, strategy_, options_));
}

// Where memory ran out each rank has in the last part what it has got before, too.
TEST_F(StreamedParts, AreDoneAgainWhereRanksHaveTheirSamples) {
  StepParts step;
  step.handed = handed_, step.again = true;
  const PartitionedCall update{program_.scoring.streamed.update, samples_, strategy_, options_};
  const Partition last = partition_part(program_, update, SamplePart{3}, step);
  EXPECT_FALSE(last.minibatches.front().begun);
  EXPECT_EQ(last.owned, joined_streamed(parts(handed_)).owned);
  size_t rows = 0;
  for (const auto& of_rank : last.minibatches.front().micro_batches)
    for (const SampleRows& batch : of_rank) rows += batch.size();
  EXPECT_EQ(rows, 8u);
}

// Of each group one rank finds what it is worth, and of no other rank it is asked again.
TEST_F(StreamedParts, EachGroupIsComparedOnce) {
  std::vector<int64_t> groups;
  for (const PartitionSample& sample : samples_) groups.push_back(sample.group.value);
  const std::vector<Partition> parts = this->parts(handed_);
  std::vector<std::vector<SampleRows>> early;
  std::set<int32_t> seen;
  for (int part = 0; part < 2; ++part) {
    early.push_back(compared_early(program_, groups, parts[part]));
    for (size_t rank = 0; rank < early.back().size(); ++rank)
      for (const int32_t row : early.back()[rank]) {
        EXPECT_LT(rank, 2u);  // of those that train
        EXPECT_TRUE(seen.insert(row).second);
      }
    for (const SampleRows& rows : parts[part].owned)
      for (const int32_t row : rows) EXPECT_EQ(seen.count(row), 1u);
  }
  SampleRows all(16);
  for (int32_t row = 0; row < 16; ++row) all[row] = row;
  const auto asked = asked_with_early({{}, {}, all, {}}, early);
  size_t count = 0;
  for (const SampleRows& rows : asked) count += rows.size();
  EXPECT_EQ(count, 16u);
  for (const int32_t row : asked[2]) EXPECT_EQ(seen.count(row), 0u);
}

// An early part has passes alone; the last does not clear what they have left.
TEST_F(StreamedParts, OnlyTheLastMakesOptimizerSteps) {
  const std::vector<Partition> parts = this->parts(handed_);
  for (size_t part = 0; part < 3; ++part) {
    const Expansion ops = expand(program_, program_.scoring.streamed.update, DeviceId{0},
                                 parts[part], static_cast<SamplePart>(part + 1));
    int64_t zeros = 0, updates = 0, passes = 0;
    for (const Op& op : ops.ops) {
      zeros += op.kind == OpKind::kZero ? 1 : 0;
      updates += op.kind == OpKind::kUpdate ? 1 : 0;
      passes += op.kind == OpKind::kBackward && op.minibatch == 0 ? 1 : 0;
    }
    EXPECT_EQ(zeros, 1 - (part == 1 ? 1 : 0));  // of the last: the second mini-batch's
    EXPECT_EQ(updates, part == 2 ? 2 : 0);
    EXPECT_GT(passes, 0);
  }
}

}  // namespace
}  // namespace braid::inline program
