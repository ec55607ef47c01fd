// Jobs whose lists have one fault that verify() does not find: verification off, deadlines of
// seconds. Each ends with an error, or with the weights, moments and metrics of the unchanged
// lists. A job for each, since ranks that wait for nobody are lost to the next.
#include "program/list_mutants.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/testing.h"
#include "comm/launcher.h"
#include "comm/world.h"
#include "host/sha256.h"
#include "session/testing.h"

namespace braid::inline session {
namespace {

struct MutantJob {
  const char* name;
  int ranks;
  const char* algorithm;
  const char* calls;      // of the plan
  const char* more = "";  // of the plan: fusion, staleness
  int64_t minibatches = 2;
  bool draws = false;    // prompts until all groups have a signal: its list repeats
  bool carries = false;  // leaves samples to the next step
};

const std::vector<MutantJob>& mutant_jobs() {
  static const std::vector<MutantJob> jobs = {
      {"two", 2, "ppo",
       "  generate: {mesh: all, dp: 2}\n"
       "  old_logprob: {mesh: all, tp: 2}\n"
       "  ref_logprob: {mesh: all, dp: 2}\n"
       "  values: {mesh: all, pp: 2, micro_batches: 2}\n"
       "  update_actor: {mesh: all, pp: 2, micro_batches: 2}\n"
       "  update_critic: {mesh: all, dp: 2, zero: 1}\n"},
      {"three", 3, "ppo",
       "  generate: {mesh: \"0,1\", dp: 2}\n"
       "  old_logprob: {mesh: \"0,1\", dp: 2}\n"
       "  ref_logprob: {mesh: \"2\", dp: 1}\n"
       "  values: {mesh: \"2\", dp: 1}\n"
       "  update_actor: {mesh: \"0,1\", pp: 2, micro_batches: 2}\n"
       "  update_critic: {mesh: \"1,2\", dp: 2}\n"},
      {"four", 4, "grpo",
       "  generate: {mesh: all, dp: 2, tp: 2}\n"
       "  old_logprob: {mesh: all, dp: 4}\n"
       "  ref_logprob: {mesh: all, dp: 2, pp: 2}\n"
       "  update_actor: {mesh: all, tp: 2, pp: 2, micro_batches: 2}\n"},
      {"slices", 2, "ppo",
       "  generate: {mesh: all, tp: 2}\n"
       "  old_logprob: {mesh: all, dp: 2, zero: 3}\n"
       "  ref_logprob: {mesh: all, dp: 2, zero: 3}\n"
       "  values: {mesh: \"0\", dp: 1}\n"
       "  update_actor: {mesh: all, pp: 2, micro_batches: 2}\n"
       "  update_critic: {mesh: all, dp: 2, zero: 3}\n"},
      {"handed", 3, "grpo",
       "  generate: {mesh: all, dp: 3}\n"
       "  old_logprob: {mesh: all, dp: 3}\n"
       "  ref_logprob: {mesh: \"0,1\", dp: 2}\n"
       "  update_actor: {mesh: all, dp: 3}\n",
       "fusion: {migrate_below_samples: 2}\n"},
      {"begun", 3, "grpo",
       "  generate: {mesh: all, dp: 3}\n"
       "  old_logprob: {mesh: all, dp: 3}\n"
       "  ref_logprob: {mesh: \"0,1\", dp: 2}\n"
       "  update_actor: {mesh: all, dp: 3}\n",
       "fusion: {migrate_below_samples: 2, scored_prefixes: true}\n"},
      {"early", 3, "grpo",
       "  generate: {mesh: \"0,1\", dp: 2}\n"
       "  old_logprob: {mesh: \"2\", dp: 1}\n"
       "  ref_logprob: {mesh: \"0,1\", dp: 2}\n"
       "  update_actor: {mesh: \"2\", dp: 1}\n",
       "fusion: {train_beside_scoring: 1}\n", 4},
      {"synced", 3, "ppo",
       "  generate: {mesh: \"2\", dp: 1}\n"
       "  old_logprob: {mesh: \"2\", dp: 1}\n"
       "  ref_logprob: {mesh: \"2\", dp: 1}\n"
       "  values: {mesh: \"2\", dp: 1}\n"
       "  update_actor: {mesh: \"0,1\", tp: 2}\n"
       "  update_critic: {mesh: \"0,1\", dp: 2}\n",
       "fusion: {sync_beside_training: true}\n"},
      {"streamed", 3, "grpo",
       "  generate: {mesh: \"0,1\", dp: 2}\n"
       "  old_logprob: {mesh: \"2\", dp: 1}\n"
       "  ref_logprob: {mesh: \"0,1\", dp: 2}\n"
       "  update_actor: {mesh: \"2\", dp: 1}\n",
       "fusion: {migrate_below_samples: 2, train_beside_generation: true}\n", 2},
      {"fused", 2, "ppo",
       "  generate: {mesh: all, dp: 2}\n"
       "  old_logprob: {mesh: all, dp: 2}\n"
       "  ref_logprob: {mesh: all, dp: 2}\n"
       "  values: {mesh: all, dp: 2}\n"
       "  update_actor: {mesh: \"0,1\", pp: 2, micro_batches: 2}\n"
       "  update_critic: {mesh: \"1,0\", pp: 2, micro_batches: 2}\n",
       "fusion: {train_schedules: true, units: 4}\n"},
      {"again", 3, "grpo",
       "  generate: {mesh: all, dp: 3}\n"
       "  old_logprob: {mesh: all, dp: 3}\n"
       "  ref_logprob: {mesh: \"0,1\", dp: 2}\n"
       "  update_actor: {mesh: all, dp: 3}\n",
       "fusion: {migrate_below_samples: [4, 2]}\n"},
      {"ahead", 3, "grpo",
       "  generate: {mesh: \"1,2\", dp: 2}\n"
       "  old_logprob: {mesh: \"0\", dp: 1}\n"
       "  ref_logprob: {mesh: \"0\", dp: 1}\n"
       "  update_actor: {mesh: \"0\", dp: 1}\n",
       "staleness: 1\n"},
      {"repeats", 2, "grpo",
       "  generate: {mesh: all, dp: 2}\n"
       "  old_logprob: {mesh: all, dp: 2}\n"
       "  ref_logprob: {mesh: all, tp: 2}\n"
       "  update_actor: {mesh: all, dp: 2}\n",
       "", 2, true},
      {"draws_slices", 2, "grpo",
       "  generate: {mesh: \"0\", dp: 1}\n"
       "  old_logprob: {mesh: all, dp: 2, zero: 3}\n"
       "  ref_logprob: {mesh: all, dp: 2}\n"
       "  update_actor: {mesh: all, dp: 2, zero: 3}\n",
       "", 2, true},
      {"left", 2, "grpo",
       "  generate: {mesh: all, dp: 2}\n"
       "  old_logprob: {mesh: all, dp: 2}\n"
       "  ref_logprob: {mesh: all, tp: 2}\n"
       "  update_actor: {mesh: all, dp: 2}\n",
       "", 2, false, true},
      {"left_ahead", 3, "grpo",
       "  generate: {mesh: \"1,2\", dp: 2}\n"
       "  old_logprob: {mesh: \"0\", dp: 1}\n"
       "  ref_logprob: {mesh: \"0\", dp: 1}\n"
       "  update_actor: {mesh: \"0\", dp: 1}\n",
       "staleness: 1\n", 2, false, true}};
  return jobs;
}

Config job_config(const MutantJob& job) {
  Config config = tiny_run(job.algorithm);
  config.train.threads = 1;
  config.run.name = cat("mutants-", job.name);
  config.algorithm.dynamic_sampling = job.draws;
  config.train.minibatches = job.minibatches;
  if (*job.more != '\0') config.rollout.max_response_length = 24;  // of which some are long
  if (job.draws) config.rollout.max_response_length = 2;           // many groups are worth the same
  if (job.carries) carry_samples(&config);
  if (config.algorithm.kl.coef == 0) config.algorithm.kl.coef = 0.01;  // as the plan has it
  return config;
}

Program job_program(const MutantJob& job) {
  return program_under(job_config(job), cat("graph: ", job.algorithm, "\ndevices: 1x", job.ranks,
                                            "\ncalls:\n", job.calls, job.more));
}

// Those of 200 random mutants that nothing refuses.
std::vector<Mutant> unrefused(const MutantJob& job, const Program& program) {
  const std::vector<Partition> partitions =
      drawn_partitions(program, 8, static_cast<int>(job.minibatches));
  std::vector<Mutant> out;
  for (Mutant& mutant : MutantSites(program, ops_of(program, partitions)).draw(200, 27))
    if (refusal(program, mutant, partitions).empty()) out.push_back(std::move(mutant));
  return out;
}

// What two steps leave on a rank: its share of weights, moments and all else that a checkpoint
// holds, and the metrics.
std::string state_text(const CheckpointState& state, const std::vector<Json>& rows) {
  std::string out = Json(rows).dump();
  for (const auto& [group, slices] : state.tensors)
    for (const SavedSlice& slice : slices) {
      const at::Tensor host = slice.values.contiguous().cpu();
      out +=
          cat(group, "/", slice.tensor, at::IntArrayRef(slice.offset), " ",
              sha256_hex({static_cast<const char*>(host.const_data_ptr()), host.nbytes()}), "\n");
    }
  return out;
}

Status run_steps(World& world, const MutantJob& job, const Program& program,
                 const ChangeOps& change, std::string* left) {
  BRAID_ASSIGN(const auto session, Session::create(job_config(job), program, &world, change));
  std::vector<Json> rows;
  if (world.global_rank() != 0) {
    BRAID_TRY(session->follow());
    BRAID_ASSIGN(const CheckpointState state, session->save_state());
    *left = state_text(state, rows);
    return ok_status();
  }
  for (int step = 0; step < 2; ++step) {
    BRAID_ASSIGN(const auto row, session->run_step());
    rows.push_back(timeless(row));
  }
  BRAID_ASSIGN(const CheckpointState state, session->save_state());
  *left = state_text(state, rows);
  return session->dismiss();
}

constexpr int kUnchanged = -1, kRefused = -2;

// One of those; or one that verify() refuses, on one rank without a sum that others wait for.
Mutant mutant_at(const MutantJob& job, const Program& program, int index) {
  if (index >= 0) return unrefused(job, program)[index];
  return MutantSites(program, {}).of(Mutation::kDropGather).front();
}

constexpr const char* kFolder = "BRAID_MUTANT_FOLDER";
constexpr const char* kWhich = "BRAID_MUTANT";  // job and mutant

// This process is a rank: runs the job that the environment names and leaves what came of it.
void run_rank(const std::string& folder) {
  int job_index = 0, mutant_index = kUnchanged;
  ASSERT_EQ(std::sscanf(std::getenv(kWhich), "%d %d", &job_index, &mutant_index), 2);
  const MutantJob& job = mutant_jobs()[job_index];
  Program program = job_program(job);
  ChangeOps change;
  if (mutant_index != kUnchanged) {
    const Mutant mutant = mutant_at(job, program, mutant_index);
    change = mutant.change_ops;
    program = mutant.lists(program);
  }
  const auto membership = read_membership(process_environment());
  ASSERT_TRUE(membership.ok() && *membership);
  auto world = World::join(**membership, {.join_s = 120, .deadline_s = 5});
  ASSERT_TRUE(world.ok()) << world.status().message();
  std::string left;
  const Status ended = guarded([&] { return run_steps(**world, job, program, change, &left); });
  const std::string path = join_path(folder, std::to_string((*world)->global_rank()));
  const std::string text = ended.ok() ? cat("ok\n", left) : cat("failed: ", ended.message());
  ASSERT_TRUE(write_file_atomic(path, text).ok());
  if (!ended.ok()) {
    (void)(*world)->fail(ended);
    std::_Exit(1);
  }
  (void)(*world)->leave();
}

// What the ranks left, or "failed" with the message of one.
std::string outcome(int job_index, int mutant_index) {
  const MutantJob& job = mutant_jobs()[job_index];
  const std::string folder =
      join_path(testing::TempDir(), cat("mutants-", ::getpid(), "-", job_index, "-", mutant_index));
  EXPECT_TRUE(make_folder(folder).ok());
  LaunchOptions options;
  options.ranks = job.ranks;
  options.argv = {std::filesystem::read_symlink("/proc/self/exe").string(),
                  "--gtest_filter=ListMutants.RunAsTheyAreOrFail", "--gtest_brief=1"};
  options.environment = {{kFolder, folder},
                         {kWhich, cat(job_index, " ", mutant_index)},
                         {"OMP_NUM_THREADS", "1"},
                         {"GTEST_TOTAL_SHARDS", "1"},
                         {"GTEST_SHARD_INDEX", "0"}};
  options.grace_s = 10;
  const auto code = launch_ranks(options);
  std::string out = code.ok() && *code == 0 ? "" : "failed";
  for (int rank = 0; rank < job.ranks; ++rank) {
    const auto text = read_file(join_path(folder, std::to_string(rank)));
    if (text.ok() && text->rfind("failed", 0) == 0) out = *text;
    if (text.ok() && out.rfind("failed", 0) != 0) out += *text;
  }
  std::filesystem::remove_all(folder);
  return out;
}

// In the fast tier one of one plan.
TEST(ListMutants, RunAsTheyAreOrFail) {
  if (const char* folder = std::getenv(kFolder)) return run_rank(folder);
  int ran = 0, failed = 0;
  for (int j = full_tier() ? 0 : 1; j < (full_tier() ? std::ssize(mutant_jobs()) : 2); ++j) {
    const MutantJob& job = mutant_jobs()[j];
    SCOPED_TRACE(job.name);
    const Program program = job_program(job);
    outcome(j, kUnchanged);  // measures matrix libraries; later jobs choose as it did
    const std::string right = outcome(j, kUnchanged);
    ASSERT_EQ(right.rfind("ok\n", 0), 0U) << right;
    EXPECT_NE(outcome(j, kRefused), right) << "what verify() refuses is no fault";
    const std::vector<Mutant> mutants = unrefused(job, program);
    RecordProperty(cat("not_refused_", job.name), static_cast<int>(mutants.size()));
    const size_t runs = full_tier() ? mutants.size() : std::min<size_t>(1, mutants.size());
    for (size_t m = 0; m < runs; ++m, ++ran) {
      const std::string left = outcome(j, static_cast<int>(m));
      failed += left.rfind("failed", 0) == 0;
      EXPECT_TRUE(left == right || left.rfind("failed", 0) == 0)
          << mutants[m].what << " changes what a run gives";
    }
  }
  EXPECT_GT(ran, 0);
  RecordProperty("inputs", ran);
  RecordProperty("ended_with_an_error", failed);
}

}  // namespace
}  // namespace braid::inline session
