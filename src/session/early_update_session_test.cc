// Sessions of two ranks in which an update begins while the samples of its later mini-batches are
// still scored, against the same plan without: what they compute has the same bits.
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>

#include <chrono>
#include <thread>

#include "comm/position.h"
#include "comm/rank_testing.h"
#include "session/testing.h"

namespace braid::inline session {
namespace {

Config early_run(const World& world) {
  Config config = tiny_run("grpo");
  config.train.minibatches = 4;
  config.train.epochs_per_rollout = 2;
  config.train.threads = 1;
  config.run.name = cat("early-", ::getpid(), "-", world.global_rank());
  return config;
}

// One rank learns, the other one generates and has the reference.
Program early_program(const Config& config, int64_t first, int learner) {
  const auto on = [](int rank) { return cat(": {mesh: \"", rank, "\"}\n"); };
  const int other = 1 - learner;
  return program_under(
      config, cat("graph: grpo\ndevices: 1x2\ncalls:\n  generate", on(other), "  ref_logprob",
                  on(other), "  old_logprob", on(learner), "  update_actor", on(learner),
                  "fusion: {train_beside_scoring: ", first, "}\n"));
}

struct Ran {
  std::unique_ptr<Session> session;
  std::vector<std::map<std::string, double>> rows;  // of the first rank
};

// Sees each instruction of the first rank before it is executed.
using SessionObserver = std::function<void(Session& session, size_t index)>;

// Two steps.
Ran early_steps(World& world, const Config& config, int64_t first,
                const SessionObserver& observer = {}, int learner = 1) {
  auto session = Session::create(config, early_program(config, first, learner), &world);
  EXPECT_TRUE(session.ok()) << session.status().message();
  if (!session.ok()) return {};
  Ran out{std::move(*session), {}};
  if (world.global_rank() != 0) {
    EXPECT_EQ(out.session->follow().message(), "");
    return out;
  }
  for (int step = 0; step < 2; ++step) {
    const auto row = out.session->run_step([&](size_t index) {
      if (observer) observer(*out.session, index);
    });
    EXPECT_TRUE(row.ok()) << row.status().message();
    if (row.ok()) out.rows.push_back(timeless(*row));
  }
  EXPECT_TRUE(out.session->dismiss().ok());
  return out;
}

void expect_same(const Ran& a, const Ran& b) {
  EXPECT_EQ(a.rows, b.rows);
  ASSERT_TRUE(a.session && b.session);
  EXPECT_TRUE(same_weights(*a.session, *b.session));
}

RANK_TEST(EarlyUpdateSession, ChangesNoBit, 2) {
  const Config config = early_run(world);
  const Ran whole = early_steps(world, config, 0);
  for (const int64_t first : {1, 2, 3}) {
    SCOPED_TRACE(first);
    expect_same(whole, early_steps(world, config, first));
  }
}

// The place of a call's part, or of its region, in the list of a rank.
size_t place_of(const Program& program, size_t rank, const std::string& call, SamplePart part) {
  const auto& list = program.ranks[rank].instructions;
  for (size_t i = 0; i < list.size(); ++i)
    if (starts_call(list[i].kind) && list[i].part == part &&
        program.graph.calls[list[i].call.value].name == call)
      return i;
  ADD_FAILURE() << "no part of " << call;
  return 0;
}

// Whether another process comes to a place within a minute.
bool comes_to(pid_t pid, const std::string& place) {
  const auto view = PositionView::open(pid);
  for (int looks = 0; view && looks < 6000; ++looks) {
    if (view->text().find(place) != std::string::npos) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// The first rank does not begin with the later samples before the other one has made the update of
// the first mini-batch, and waits for them.
RANK_TEST(EarlyUpdateSession, IsMadeBeforeTheOtherSamplesAreScored, 2) {
  const Config config = early_run(world);
  const at::Tensor pid =
      at::tensor({world.global_rank() == 1 ? static_cast<int64_t>(::getpid()) : int64_t{0}});
  ASSERT_TRUE((*world.everyone())->all_reduce(pid, Reduce::kSum, "a process").wait().ok());
  const Program program = early_program(config, 1, 1);
  const size_t scores = place_of(program, 0, "ref_logprob", SamplePart::kLate),
               goes_on = place_of(program, 1, "update_actor", SamplePart::kLate);
  const std::string there = cat("instruction ", goes_on, " (region_begin)");
  int waited = 0;
  const Ran held = early_steps(world, config, 1, [&](Session&, size_t index) {
    if (index != scores) return;
    EXPECT_TRUE(comes_to(static_cast<pid_t>(pid.item<int64_t>()), there));
    ++waited;
  });
  EXPECT_EQ(waited, world.global_rank() == 0 ? 2 : 0);
  expect_same(early_steps(world, config, 0), held);
}

// Opened again within its first part, as after a failure, an update still ends with that part.
RANK_TEST(EarlyUpdateSession, EndsWithItsPartWhereItIsOpenedAgain, 2) {
  const Config config = early_run(world);
  const Program program = early_program(config, 2, 0);
  const auto& list = program.ranks[0].instructions;
  const size_t begin = place_of(program, 0, "update_actor", SamplePart::kEarly);
  size_t passes = begin;
  while (list[passes].kind != OpKind::kPasses) ++passes;
  int came = 0;
  const SessionObserver reopens = [&](Session& session, size_t index) {
    if (index != passes || ++came % 2 != 0) return;
    EXPECT_EQ(session.training(list[begin].call).open_minibatch(), 1u);
    const Status reopened = session.reopen(list[begin]);
    EXPECT_TRUE(reopened.ok()) << reopened.message();
  };
  const Ran again = early_steps(world, config, 2, reopens, 0);
  EXPECT_EQ(came, world.global_rank() == 0 ? 4 : 0) << "two mini-batches in each of two steps";
  expect_same(early_steps(world, config, 0, {}, 0), again);
}

// Where samples leave the step after the first of them were scored, mini-batches are others than
// was thought, and the update waits for all.
RANK_TEST(EarlyUpdateSession, SamplesMayBeDropped, 2) {
  Config config = early_run(world);
  config.reward = {reward_without_one_of(16)};
  const Ran whole = early_steps(world, config, 0), early = early_steps(world, config, 1);
  expect_same(whole, early);
  if (world.global_rank() != 0 || early.rows.size() != 2) return;
  EXPECT_GT(early.rows[0].at("reward/left_out"), 0);
  EXPECT_EQ(early.rows[1].at("reward/left_out"), 0);
}

}  // namespace
}  // namespace braid::inline session
