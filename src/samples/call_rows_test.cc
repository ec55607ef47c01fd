// Which rows each rank works on once samples of a step were dropped.
#include "samples/call_rows.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "program/early_update_testing.h"

namespace braid::inline samples {
namespace {

using testing::IsEmpty;
using testing::Not;

constexpr int64_t kDrawnPrompts = 8, kDrawnOfPrompt = 4;
constexpr int64_t kDrawn = kDrawnPrompts * kDrawnOfPrompt;

// Responses of 1 to 13 tokens.
SampleStore drawn_samples(const Program& program, CallId generate) {
  SampleStore out(program.graph);
  std::vector<StoredSample> samples;
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < kDrawn; ++i) {
    samples.push_back({SampleId{i}, GroupId{i / kDrawnOfPrompt}, "", Json::object(), {}});
    lengths.push_back(1 + (i * 7) % 13);
  }
  out.begin(std::move(samples));
  out.set_counts("prompt_lens", std::vector<int64_t>(kDrawn, 3));
  out.set_lens_of(program.graph.calls[generate.value], std::move(lengths));
  return out;
}

CallId call_named(const Program& program, const std::string& name) {
  for (int32_t i = 0; i < std::ssize(program.graph.calls); ++i)
    if (program.graph.calls[i].name == name) return CallId{i};
  ADD_FAILURE() << name;
  return CallId{-1};
}

// Every third one is gone.
std::vector<bool> without_thirds() {
  std::vector<bool> out;
  for (int64_t i = 0; i < kDrawn; ++i) out.push_back(i % 3 != 1);
  return out;
}

using Ids = std::set<int64_t>;
Ids ids_of(const SampleRows& rows, const SampleStore& store) {
  Ids out;
  for (const int32_t row : rows) out.insert(store.sample(row).id.value);
  return out;
}

// What a data-parallel rank of a call has in each part, [part][dp rank], and the micro-batches cut.
std::vector<std::vector<Ids>> shares_of(CallRows& rows, const Program& program,
                                        const SampleStore& store, CallId call) {
  std::vector<std::vector<Ids>> out;
  for (const SamplePart part : parts_of_call(program, call)) {
    const Partition partition = rows.partition(call, 0, part);
    out.emplace_back();
    for (size_t rank = 0; rank < partition.owned.size(); ++rank) {
      SampleRows cut;
      for (const SampleRows& batch : partition.minibatches.front().micro_batches[rank])
        cut.insert(cut.end(), batch.begin(), batch.end());
      out.back().push_back(ids_of(partition.owned[rank], store));
      EXPECT_EQ(ids_of(cut, store), out.back().back());
    }
  }
  return out;
}

class CallRowsOf : public testing::Test {
 protected:
  // One mini-batch of four at a time; all but the reference on the first two of four devices.
  void compile_plan(const std::function<void(ExecutionPlan*)>& change) {
    const PlanningProblem problem = scored_beside(kDrawnPrompts, 4);
    ExecutionPlan plan = in_halves(problem, {"generate", "old_logprob", "update_actor"}, 0);
    change(&plan);
    auto compiled = compile(plan, problem);
    ASSERT_TRUE(compiled.ok()) << compiled.status().message();
    program_ = std::move(*compiled);
    config_.train.minibatches = 4;
    generate_ = call_named(program_, "generate");
    scorer_ = call_named(program_, "ref_logprob");
    store_ = drawn_samples(program_, generate_);
  }

  // What is dropped is in no share; all else stays on the rank that it was given to.
  void expect_shares_stay(CallRows& rows) {
    const std::vector<bool> kept = without_thirds();
    auto expected = shares_of(rows, program_, store_, scorer_);
    for (auto& part : expected)
      for (Ids& ids : part) {
        EXPECT_THAT(ids, Not(IsEmpty()));
        std::erase_if(ids, [&](int64_t id) { return !kept[id]; });
      }
    rows.retain(kept, 0, call_named(program_, "advantages"));
    store_.retain(kept);
    EXPECT_EQ(shares_of(rows, program_, store_, scorer_), expected);
  }

  Config config_;
  Program program_;
  CallId generate_, scorer_;
  SampleStore store_{Graph()};
};

TEST_F(CallRowsOf, AScorerBesideAnUpdateKeepsItsSharesOfWhatIsLeft) {
  compile_plan([](auto* plan) { plan->fusion.train_beside_scoring = 1; });
  if (HasFatalFailure()) return;
  CallRows rows(config_, program_, store_);
  expect_shares_stay(rows);
  // An update that learns from other mini-batches than was thought waits for all.
  const CallId update = program_.early_update.update;
  const std::vector<SamplePart> parts = parts_of_call(program_, update);
  for (const SamplePart part : parts)
    EXPECT_EQ(rows.partition(update, 0, part).minibatches.size(), part == parts.back() ? 4U : 0U);
  // Where memory is short, too.
  const auto shares = shares_of(rows, program_, store_, scorer_);
  ASSERT_TRUE(rows.cut_smaller(scorer_, 0, 0, parts.back()));
  EXPECT_EQ(shares_of(rows, program_, store_, scorer_), shares);
}

TEST_F(CallRowsOf, AGenerationThatWasHandedOverKeepsWhatIsLeft) {
  compile_plan([](auto* plan) { plan->fusion.migrate_below_samples = 8; });
  if (HasFatalFailure()) return;
  CallRows rows(config_, program_, store_);
  std::vector<SampleProgress> progress;
  for (const int64_t length : store_.lens_of(program_.graph.calls[generate_.value]))
    progress.push_back({3, length, length < 11, 0});
  rows.hand_over(hand_over(progress, rows.requests(generate_), {}));
  const auto generated = rows.by_rank(generate_, 0);
  std::vector<Ids> expected;
  for (const SampleRows& of_rank : generated) {
    Ids& ids = expected.emplace_back(ids_of(of_rank, store_));
    std::erase_if(ids, [](int64_t id) { return id % 3 == 1; });
  }
  expect_shares_stay(rows);
  std::vector<Ids> left;
  for (const SampleRows& of_rank : rows.by_rank(generate_, 0))
    left.push_back(ids_of(of_rank, store_));
  EXPECT_EQ(left, expected);
  EXPECT_THAT(rows.handed().front().moves,
              testing::Each(testing::Field(&SampleMove::row, testing::Lt(store_.size()))));
}

// Who says what all ranks of a call do is found without asking where each rank is.
TEST_F(CallRowsOf, TheFirstRankOfACallIsTheLeastOfItsMesh) {
  compile_plan([](auto* plan) { plan->fusion.train_beside_scoring = 1; });
  if (HasFatalFailure()) return;
  for (CallId call{0}; call.value < std::ssize(program_.graph.calls); ++call.value) {
    auto& devices = program_.calls[call.value].mesh.devices;
    if (!uses_model(program_.graph.calls[call.value])) continue;
    std::reverse(devices.begin(), devices.end());
    const CallRows rows(config_, program_, store_);
    std::vector<int64_t> members;
    for (int64_t rank = 0; rank < std::ssize(program_.ranks); ++rank)
      if (rows.dp_rank(call, rank) >= 0) members.push_back(rank);
    EXPECT_EQ(rows.first_rank(call), members.front());
    EXPECT_EQ(rows.ranks_of(call), std::ssize(members));
  }
  const CallRows rows(config_, program_, store_);
  EXPECT_NE(rows.first_rank(scorer_), rows.first_rank(generate_));
}

}  // namespace
}  // namespace braid::inline samples
