// Jobs of several ranks one of which runs out of memory: it keeps the others going, and all repeat
// what was begun with smaller micro-batches. BRAID_TEST_FULL=1 tries many more moments and layouts.
#include <ATen/core/Tensor.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/sub.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "models/size.h"
#include "runs/job_testing.h"

namespace braid {
namespace {

using testing::HasSubstr;

class JobMemory : public JobRun {
 protected:
  struct MemoryCase : LayoutCase {
    std::string family = {};  // of the model, as with_model() has it
  };

  // One for each way in which ranks depend on each other, and in the full tier some of them
  // together.
  static std::vector<MemoryCase> memory_layouts() {
    const std::string zero1 = everywhere("grpo", "dp: 2", "dp: 2", "zero: 1");
    const std::string zero2 = everywhere("grpo", "dp: 2", "dp: 2", "zero: 2");
    const std::string tp2 = everywhere("grpo", "tp: 2", "tp: 2");
    const std::string tp2s = "tp: 2, sequence_parallel: true";
    const std::string grid = "dp: 2, tp: 2, pp: 2, micro_batches: 2";
    std::vector<MemoryCase> all = {
        {{"m_dp2", "grpo", "1x2", everywhere("grpo", "dp: 2", "dp: 2")}},
        {{"m_tp2", "grpo", "1x2", tp2}},
        {{"m_pp2", "grpo", "1x2", everywhere("grpo", "dp: 2", "pp: 2, micro_batches: 2")}},
        {{"m_zero2", "grpo", "1x2", zero2}},
        {{"m_lora_tp2", "grpo", "1x2", tp2}, "lora"},
        {{"m_zero1", "grpo", "1x2", zero1, true}},
        {{"m_zero3", "grpo", "1x2", everywhere("grpo", "dp: 2", "dp: 2, zero: 3"), true}},
        {{"m_lora_zero3", "grpo", "1x2", everywhere("grpo", "dp: 2", "dp: 2, zero: 3"), true},
         "lora"},
        {{"m_lora_tp2s", "grpo", "1x2", everywhere("grpo", "dp: 2", tp2s, "recompute: full"), true},
         "lora"},
        {{"m_tp2s", "ppo", "1x2", everywhere("ppo", "dp: 2", tp2s, "recompute: full"), true}},
        {{"m_interleaved", "ppo", "1x2",
          everywhere("ppo", "dp: 2", "pp: 2, micro_batches: 4", "interleave: 2"), true}},
        {{"m_grid", "grpo", "1x8", everywhere("grpo", "dp: 4, tp: 2", grid, "zero: 2"), true}},
    };
    if (!full_tier()) std::erase_if(all, [](const MemoryCase& of) { return of.full; });
    return all;
  }

  static std::vector<std::string> replayed(const MemoryCase& layout, const std::string& name) {
    const std::string one = recorded(layout.algorithm, layout.family);
    return job_command(name, layout.algorithm,
                       with_model(layout.family, {"train.total_steps=2",
                                                  "rollout.replay=" + path(one + "/rollouts.jsonl"),
                                                  "plan.file=" + write_plan(layout)}));
  }

  // Relative distance of the weights that two runs have trained; none is far.
  static void expect_near_weights(const std::string& a, const std::string& b) {
    const Tensors left = weights_of(path(a + "/export/actor")),
                  right = weights_of(path(b + "/export/actor"));
    ASSERT_EQ(left.size(), right.size());
    for (const auto& [name, tensor] : left)
      EXPECT_LE((tensor - right.at(name)).norm().item<double>(),
                1e-5 * std::max(tensor.norm().item<double>(), 1e-4))
          << name;
  }

  // The quickstart's model, so much larger that its weights are most of what a job holds.
  static std::string wide_model() {
    const std::string file = path("wide.config.json");
    Json config = *parse_json(
        *read_file(cat(BRAID_SOURCE_DIR, "/examples/quickstart/model/config.json")), "");
    config["hidden_size"] = 256;
    config["intermediate_size"] = 704;
    config["num_hidden_layers"] = 8;
    EXPECT_TRUE(make_folder(folder_).ok());
    EXPECT_TRUE(write_file_atomic(file, config.dump()).ok());
    return file;
  }

  static double repeats(const std::string& name) {
    double sum = 0;
    for (const Json& row : metrics(name)) sum += row.value("memory/repeats", 0.0);
    return sum;
  }
};

// An allocation of one rank fails, at moments all over a run: in a pass, and in the sums after it,
// it is made good.
TEST_F(JobMemory, RankThatRunsOutKeepsTheOthersGoing) {
  const std::string preload =
      "LD_PRELOAD=" + join_path(parent_folder(BRAID_BINARY), "tests/libfake_allocation_failure.so");
  std::mt19937 random(7);
  for (const MemoryCase& layout : memory_layouts()) {
    SCOPED_TRACE(layout.name);
    const std::string counted = layout.name + "-counted", counts = path(layout.name + ".counts");
    const std::string one = recorded(layout.algorithm, layout.family);
    same_kernels(one, counted);
    const CommandOutcome whole =
        shell(cat("BRAID_TEST_ALLOCATION_COUNT=", counts, " ", preload), replayed(layout, counted));
    ASSERT_EQ(whole.exit_code, 0) << whole.output;
    long most = 0;  // of a rank
    const std::string text = *read_file(counts);
    for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1)
      most = std::max(most, std::atol(text.c_str() + at));
    ASSERT_GT(most, 400);
    int repeated = 0;
    for (int trial = 0; trial < (full_tier() ? 4 : 1); ++trial) {
      const std::string name = cat(layout.name, "-", trial);
      same_kernels(one, name);
      const long number = most / 2 + static_cast<long>(random() % (most / 4));
      const CommandOutcome end = shell(cat("BRAID_TEST_FAIL_ALLOCATION=", number,
                                           " BRAID_TEST_FAIL_RANK=", trial % 2, " ", preload),
                                       replayed(layout, name));
      SCOPED_TRACE(cat("allocation ", number, " of rank ", trial % 2, ": ", end.output));
      if (end.exit_code != 0) {
        EXPECT_EQ(end.exit_code, 1);
        EXPECT_THAT(end.output, HasSubstr("out of memory"));
        continue;
      }
      repeated += repeats(name) > 0 ? 1 : 0;
      expect_near_weights(counted, name);
    }
    RecordProperty(layout.name, repeated);
    if (full_tier()) {
      EXPECT_GT(repeated, 0) << "no trial failed within a pass";
    }
  }
}

// An allocation fails on a rank that does nothing but score, of samples that are still generated
// their beginnings too, with keys and values that it keeps: all is scored again in smaller pieces,
// and what is learnt is the same.
TEST_F(JobMemory, RankThatScoresBeginningsMayRunOut) {
  const std::string preload =
      "LD_PRELOAD=" + join_path(parent_folder(BRAID_BINARY), "tests/libfake_allocation_failure.so");
  const LayoutCase layout{"m_begun", "grpo", "1x3",
                          "  generate: {mesh: \"0,1\", dp: 2}\n"
                          "  old_logprob: {mesh: \"0,1\", dp: 2}\n"
                          "  ref_logprob: {mesh: \"2\", dp: 1}\n"
                          "  update_actor: {mesh: \"0,1\", dp: 2}\n"
                          "fusion: {migrate_below_samples: 5, scored_prefixes: true}\n"};
  const auto command = [&](const std::string& name) {
    return job_command(name, layout.algorithm,
                       {"train.total_steps=2", "rollout.max_response_length=24",
                        "rollout.record=true", "plan.file=" + write_plan(layout)});
  };
  const std::string counts = path("m_begun.counts");
  const CommandOutcome whole =
      shell(cat("BRAID_TEST_FAIL_RANK=2 BRAID_TEST_ALLOCATION_COUNT=", counts, " ", preload),
            command("m_begun-counted"));
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  double begun = 0;
  for (const Json& row : metrics("m_begun-counted"))
    begun += row["rollout/begun_tokens"].get<double>();
  ASSERT_GT(begun, 0);
  long all = std::numeric_limits<long>::max();  // of the rank that has least to do: that one
  const std::string text = *read_file(counts);
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1)
    if (const long of_rank = std::atol(text.c_str() + at); of_rank > 0)
      all = std::min(all, of_rank);
  RecordProperty("allocations", text);
  const int trials = full_tier() ? 12 : 2;
  int repeated = 0;
  for (int trial = 0; trial < trials; ++trial) {
    const std::string name = cat("m_begun-", trial);
    same_kernels("m_begun-counted", name);
    const long number = all / 3 + (trial + 1) * (all / 2) / (trials + 1);
    const CommandOutcome end =
        shell(cat("BRAID_TEST_FAIL_ALLOCATION=", number, " BRAID_TEST_FAIL_RANK=2 ", preload),
              command(name));
    ASSERT_EQ(end.exit_code, 0) << "allocation " << number << ": " << end.output;
    repeated += repeats(name) > 0 ? 1 : 0;
    expect_near_weights("m_begun-counted", name);
    EXPECT_EQ(*read_file(path("m_begun-counted/rollouts.jsonl")),
              *read_file(path(name + "/rollouts.jsonl")));
  }
  EXPECT_EQ(repeated, trials) << text;
}

// Samples whose activations are most of what a step takes.
std::vector<std::string> long_samples(std::vector<std::string> more) {
  more.insert(more.end(), {"rollout.prompts_per_step=16", "rollout.max_response_length=40",
                           "rollout.ignore_eos=true", "train.total_steps=2"});
  return more;
}

std::string limit_of(double bytes) { return cat("train.memory_limit_gib=", bytes / (1 << 30)); }

// What fits in no rank's memory in one piece is repeated in smaller ones, to the weights of a
// process that has room.
TEST_F(JobMemory, LimitIsMetWithSmallerMicroBatches) {
  for (const MemoryCase& layout : memory_layouts()) {
    // The export, which gathers the whole model, takes more than a step does where eight ranks
    // share so small a one.
    if (layout.algorithm != "grpo" || layout.devices == "1x8") continue;
    SCOPED_TRACE(layout.name);
    const std::string one = "limit-one" + layout.family;
    if (!path_exists(path(one + "/export")))
      finish(job_command(one, "grpo",
                         with_model(layout.family, long_samples({"rollout.record=true"}))));
    const auto run = [&](const std::string& name, const std::string& limit) {
      same_kernels(one, name);
      const std::vector<std::string> options =
          long_samples({"rollout.replay=" + path(one + "/rollouts.jsonl"),
                        "plan.file=" + write_plan(layout), "train.rehearse=false", limit});
      return shell("", job_command(name, "grpo", with_model(layout.family, options)));
    };
    const std::string roomy = layout.name + "-roomy", tight = layout.name + "-tight";
    const CommandOutcome first = run(roomy, "train.memory_limit_gib=0");
    ASSERT_EQ(first.exit_code, 0) << first.output;
    double most = 0;
    const Json predicted = *parse_json(*read_file(path(roomy + "/predicted.json")), "");
    for (const Json& rank : predicted["ranks"])
      most = std::max(most, rank["measured_bytes"].get<double>());
    const CommandOutcome second = run(tight, limit_of(0.85 * most));
    ASSERT_EQ(second.exit_code, 0) << second.output;
    EXPECT_GE(repeats(tight), 1) << second.output;
    EXPECT_THAT(second.output, HasSubstr("it goes on with micro-batches of at most"));
    expect_near_weights(one, tight);
  }
}

// The rehearsal of all ranks, generation included, changes no bit of what follows.
TEST_F(JobMemory, RehearsedJobGivesTheSameBits) {
  for (const MemoryCase& layout : memory_layouts()) {
    const bool quick = layout.name == "m_tp2" || layout.name == "m_zero2";
    if (!quick && !full_tier()) continue;
    SCOPED_TRACE(layout.name);
    const std::string plain = layout.name + "-plain", rehearsed = layout.name + "-rehearsed";
    const auto options = [&](std::vector<std::string> more) {
      more.insert(more.end(), {"plan.file=" + write_plan(layout), "train.total_steps=2"});
      return with_model(layout.family, more);
    };
    finish(job_command(plain, layout.algorithm, options({})));
    same_kernels(plain, rehearsed);
    finish(job_command(rehearsed, layout.algorithm, options({"train.memory_limit_gib=1"})));
    EXPECT_EQ(metrics(plain), metrics(rehearsed));
    EXPECT_EQ(hashes(path(plain + "/export")), hashes(path(rehearsed + "/export")));
  }
}

// Bytes at the fullest moment of a step, on the rank with the most.
struct Fullest {
  double predicted = 0, measured = 0;
};

// A generation with all of the model on each rank holds a copy: under a training with stages half
// of it is what the rank trains, under tensor parallelism it is memory of its own. What the jobs
// hold differs by as much as what the plans predict; all else that generation has beside it is the
// same in both, also what is priced roughly where nothing was profiled.
TEST_F(JobMemory, CopyInAnotherLayoutTakesWhatWasPredicted) {
  const std::string model = wide_model();
  const auto fullest = [&](const std::string& name, const std::string& passes) {
    const LayoutCase layout = {name, "grpo", "1x2", everywhere("grpo", "dp: 2", passes)};
    finish(job_command(name, "grpo",
                       {"model.config=" + model, "plan.file=" + write_plan(layout),
                        "optim.actor.name=adamw", "optim.actor.lr=1e-4", "train.total_steps=2"}));
    const Json predicted = *parse_json(*read_file(path(name + "/predicted.json")), "");
    Fullest out;
    for (const Json& rank : predicted["ranks"]) {
      out.predicted = std::max(out.predicted, rank["predicted_bytes"].get<double>());
      out.measured = std::max(out.measured, rank["measured_bytes"].get<double>());
    }
    return out;
  };
  const Fullest stages = fullest("m-copy-pp2", "pp: 2"), slices = fullest("m-copy-tp2", "tp: 2");
  const double whole =
      4.0 * static_cast<double>(total_params(*parse_model_size(*read_file(model), model)));
  EXPECT_NEAR((slices.predicted - stages.predicted) / whole, 0.5, 0.05);
  EXPECT_NEAR((slices.measured - stages.measured) / whole, 0.5, 0.05);
}

// Not even the models fit: one message that speaks of them.
TEST_F(JobMemory, LimitBelowTheModelsEndsTheRunWhileTheyLoad) {
  const auto of_limit = [&](const std::string& name, std::vector<std::string> more) {
    more.push_back(limit_of(1e5));
    return shell("", job_command(name, "grpo", more));
  };
  const std::string two = "plan.file=" + write_plan(memory_layouts()[0]);
  for (const CommandOutcome& end : {of_limit("m-one-none", {}), of_limit("m-two-none", {two})}) {
    EXPECT_EQ(end.exit_code, 2) << end.output;
    EXPECT_THAT(end.output, HasSubstr("while the models load: out of memory"));
  }
}

// Too little for the longest micro-batch that may come: nothing is begun, one message says who
// holds the memory and what would help.
TEST_F(JobMemory, LimitThatIsTooLowEndsTheRunBeforeItsFirstStep) {
  std::vector<MemoryCase> layouts = memory_layouts();
  layouts.resize(3);
  layouts.push_back({{"m_one", "grpo", "1x1", everywhere("grpo", "dp: 1", "dp: 1")}});
  for (const MemoryCase& layout : layouts) {
    SCOPED_TRACE(layout.name);
    const std::string name = layout.name + "-low";
    const CommandOutcome end =
        shell("", job_command(name, "grpo",
                              long_samples({"plan.file=" + write_plan(layout), limit_of(20e6)})));
    EXPECT_EQ(end.exit_code, 2) << end.output;
    EXPECT_EQ(error_lines(end.output), 1) << end.output;
    for (const char* part :
         {"before the first step: rank ", "weights of actor", "gradients",
          "What would help most: ", "train.recompute=true", "train.micro_tokens"})
      EXPECT_THAT(end.output, HasSubstr(part));
    EXPECT_EQ(steps_complete(name), 0);
  }
}

}  // namespace
}  // namespace braid
