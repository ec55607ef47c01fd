// `braid profile` as a user runs it, and its file as the cost model reads it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <set>

#include "base/text.h"
#include "host/file.h"
#include "host/testing.h"
#include "pricing/compute.h"
#include "test_paths.h"

namespace braid {
namespace {

using testing::HasSubstr;

class ProfileCommand : public testing::Test {
 protected:
  void SetUp() override {
    if (!path_exists(BRAID_BINARY)) GTEST_SKIP() << "the program is not built: " << BRAID_BINARY;
    ASSERT_TRUE(make_folder(folder_).ok());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Runs the command; returns how it ended, and keeps what it wrote to the error stream.
  std::string profile(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {BRAID_BINARY, "profile"});
    const Finished out = run_program(arguments);
    errors_ = out.errors;
    return out.end;
  }

  std::string folder_ = cat(testing::TempDir(), "/braid_profile_", ::getpid());
  std::string model_ = cat(BRAID_SOURCE_DIR, "/tests/data/models/llama");
  std::string errors_;
};

TEST_F(ProfileCommand, WritesTimesThatReplaceTheCatalogue) {
  const std::string out = join_path(folder_, "profile.json");
  EXPECT_EQ(profile({model_, "--out", out, "--tokens", "8,16", "--lengths", "8", "--batches", "1,4",
                     "--contexts", "40", "--seconds", "0.001", "--threads", "1"}),
            "exited with status 0")
      << errors_;
  const auto text = read_file(out);
  ASSERT_TRUE(text.ok());
  const auto read = profile_from_json(*parse_json(*text, out));
  ASSERT_TRUE(read.ok()) << read.status().message();
  std::set<ProfileOp> ops;
  for (const LayerTime& time : read->layers) ops.insert(time.op);
  EXPECT_EQ(ops, (std::set<ProfileOp>{ProfileOp::kLayerForward, ProfileOp::kLayerBackward,
                                      ProfileOp::kLayerDecode, ProfileOp::kHeadForward,
                                      ProfileOp::kHeadBackward, ProfileOp::kOptimizer}));
  EXPECT_EQ(read->gpu.key, "this-machine");
  EXPECT_GT(read->gpu.bf16_tflops, 0);

  const auto config = read_file(join_path(model_, "config.json"));
  const auto size = parse_model_size(*config, model_);
  ASSERT_TRUE(size.ok()) << size.status().message();
  DeviceModel device{read->gpu, read->precision, {}, &*read};
  LayerPass pass;
  pass.tokens = 16;
  pass.context = 4;
  for (const LayerTime& time : read->layers) {
    if (time.op != ProfileOp::kLayerForward || time.tokens != 16) continue;
    EXPECT_DOUBLE_EQ(layer_forward_s(*size, pass, device), time.seconds);
  }
}

TEST_F(ProfileCommand, ARunOfOneProcessIsPredictedByIt) {
  const std::string out = join_path(folder_, "profile.json");
  const std::string quickstart = cat(BRAID_SOURCE_DIR, "/examples/quickstart/");
  ASSERT_EQ(profile({cat(quickstart, "model"), "--out", out, "--tokens", "64", "--lengths", "16",
                     "--batches", "1,8", "--contexts", "16", "--seconds", "0.001"}),
            "exited with status 0")
      << errors_;
  const auto trained = [&](const std::string& name, const std::string& more) {
    const Finished run =
        run_program({BRAID_BINARY, "sft", cat(quickstart, "sft.yaml"),
                     cat("model.config=", quickstart, "model/config.json"),
                     cat("tokenizer.path=", quickstart, "model"), "train.total_steps=3",
                     "checkpoint.every_steps=100", "train.micro_tokens=512",
                     cat("run.dir=", folder_), cat("run.name=", name), more});
    EXPECT_EQ(run.end, "exited with status 0") << run.errors;
    return run.errors;
  };
  // It cuts its passes as a run without a profile does.
  const std::string said = trained("predicted", cat("cluster.profile=", out));
  EXPECT_THAT(said, HasSubstr("predicted | measured"));
  EXPECT_THAT(said, testing::Not(HasSubstr("overrules")));
  const auto text = read_file(join_path(folder_, "predicted/predicted.json"));
  ASSERT_TRUE(text.ok()) << text.status().message();
  const auto predicted = parse_json(*text, "predicted.json");
  std::set<std::string> computed;  // data are there at no price
  for (const Json& call : (*predicted)["calls"]) {
    EXPECT_GT(call["measured_s"].get<double>(), 0) << call;
    if (call["predicted_s"].get<double>() > 0) computed.insert(call["call"].get<std::string>());
  }
  EXPECT_EQ(computed, std::set<std::string>{"update_actor"});
  EXPECT_EQ((*predicted)["ranks"].size(), 1);
  // What is trained is what a run without a profile trains.
  trained("alone", "log.console=false");
  const std::string weights = "export/actor/model.safetensors";
  EXPECT_EQ(*read_file(join_path(folder_, "predicted/" + weights)) ==
                *read_file(join_path(folder_, "alone/" + weights)),
            true);
}

TEST_F(ProfileCommand, OneProcessIsOneGpuOfTheNodeThatItsProfileNames) {
  const std::string out = join_path(folder_, "profile.json");
  ASSERT_EQ(profile({model_, "--out", out, "--tokens", "8", "--lengths", "8", "--batches", "1",
                     "--contexts", "40", "--seconds", "0"}),
            "exited with status 0")
      << errors_;
  Json json = *parse_json(*read_file(out), out);
  json["gpu"]["key"] = "h100-80g";  // the catalogue: eight a node
  json["gpu"]["architecture"] = "hopper";
  ASSERT_TRUE(write_file_atomic(out, json.dump()).ok());
  const std::string quickstart = cat(BRAID_SOURCE_DIR, "/examples/quickstart/");
  const auto train = [&](const std::string& more) {
    return run_program({BRAID_BINARY, "sft", cat(quickstart, "sft.yaml"), "--dry-run",
                        cat("model.config=", quickstart, "model/config.json"),
                        cat("tokenizer.path=", quickstart, "model"), cat("run.dir=", folder_),
                        more});
  };
  const Finished one = train(cat("cluster={profile: ", out, "}"));
  EXPECT_EQ(one.end, "exited with status 0") << one.errors;
  const Finished eight = train(cat("cluster={profile: ", out, ", nodes: 1, gpus_per_node: 8}"));
  EXPECT_EQ(eight.end, "exited with status 2");
  EXPECT_THAT(eight.errors, HasSubstr("cluster: has 8 devices, and no plan says"));
}

TEST_F(ProfileCommand, RanksMeasureSideBySideAndEachOther) {
  const std::string out = join_path(folder_, "ranks.json");
  EXPECT_EQ(profile({model_, "--out", out, "--ranks", "2", "--dtype", "bf16", "--tokens", "8",
                     "--lengths", "8", "--batches", "1", "--contexts", "40", "--seconds", "0"}),
            "exited with status 0")
      << errors_;
  const auto read = profile_from_json(*parse_json(*read_file(out), out));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->precision, Precision::kBf16);
  std::set<std::string> collectives;
  for (const CollectiveTime& time : read->collectives) {
    EXPECT_EQ(time.members, 2);
    collectives.insert(time.op);
  }
  EXPECT_EQ(collectives,
            (std::set<std::string>{"all_reduce", "all_gather", "reduce_scatter", "broadcast"}));
  for (const char* name : {"nvlink_latency_us", "pcie_share", "mem_fused_factor", "mem_head_bytes"})
    EXPECT_GT(read->efficiencies.at(name), 0) << name;
  // bf16 is packed where the processor multiplies it.
  const bool packs = __builtin_cpu_supports("avx512bf16") != 0;
  EXPECT_NEAR(read->efficiencies.at("mem_packed_share"), packs ? 1 : 0, 0.5);
  const auto whole = profile({model_, "--out", out, "--tokens", "8", "--lengths", "8", "--batches",
                              "1", "--contexts", "40", "--seconds", "0"});
  EXPECT_EQ(whole, "exited with status 0") << errors_;
  const auto alone = profile_from_json(*parse_json(*read_file(out), out));
  EXPECT_NEAR(read->gpu.hbm_bytes, alone->gpu.hbm_bytes / 2, 1e-3 * alone->gpu.hbm_bytes);
  EXPECT_TRUE(alone->collectives.empty());
}

TEST_F(ProfileCommand, ShareOfTensorParallelRanksIsMeasured) {
  const std::string out = join_path(folder_, "profile.json");
  EXPECT_EQ(profile({model_, "--out", out, "--tp", "2", "--tokens", "8", "--lengths", "8",
                     "--batches", "2", "--contexts", "40", "--seconds", "0"}),
            "exited with status 0")
      << errors_;
  const auto read = profile_from_json(*parse_json(*read_file(out), out));
  ASSERT_TRUE(read.ok()) << read.status().message();
  std::map<int, std::set<ProfileOp>> ops;
  for (const LayerTime& time : read->layers) ops[time.tp].insert(time.op);
  EXPECT_EQ(ops[2], (std::set<ProfileOp>{ProfileOp::kLayerForward, ProfileOp::kLayerBackward,
                                         ProfileOp::kLayerDecode, ProfileOp::kHeadForward,
                                         ProfileOp::kHeadBackward}));
  // The price of two ranks is what was measured, not half of one.
  for (const LayerTime& time : read->layers)
    if (time.op == ProfileOp::kLayerDecode && time.tp == 2)
      EXPECT_DOUBLE_EQ(*profiled_layer_s(*read, time), time.seconds);
}

TEST_F(ProfileCommand, BadInputIsOneLineAndCodeTwo) {
  EXPECT_EQ(profile({join_path(folder_, "nothing")}), "exited with status 2");
  EXPECT_THAT(errors_, HasSubstr("nothing: there is no such model folder"));
  EXPECT_EQ(profile({model_, "--tokens", "0"}), "exited with status 2");
  EXPECT_THAT(errors_, HasSubstr("--tokens: 0 is not in 1..1048576"));
  EXPECT_EQ(profile({model_, "--device", "tpu"}), "exited with status 2");
  EXPECT_THAT(errors_, HasSubstr("'tpu' is not cpu, cuda or cuda:N"));
  EXPECT_EQ(profile({model_, "--tp", "3"}), "exited with status 2");
  EXPECT_THAT(errors_, HasSubstr("--tp: 3 is not a number of ranks that share the 4 heads, "));
  EXPECT_EQ(profile({model_, "--dtype", "f16"}), "exited with status 2");
  EXPECT_THAT(errors_, HasSubstr("--dtype: 'f16' is not f32 or bf16"));
}

}  // namespace
}  // namespace braid
