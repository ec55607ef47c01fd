#include "host/hub_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/text.h"
#include "host/file.h"

namespace braid::inline host {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A cache of its own, laid out as huggingface_hub lays it out.
class HubCache : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"})
      ::unsetenv(name);
    home_ = cat(testing::TempDir(), "/braid-hub-", ::getpid());
    ::setenv("HF_HOME", home_.c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("HF_HOME");
    std::filesystem::remove_all(home_);
  }
  std::string add(const std::string& repository, const std::string& commit,
                  const std::string& branch = "") const {
    const std::string folder = cat(home_, "/hub/", repository);
    const std::string snapshot = cat(folder, "/snapshots/", commit);
    EXPECT_TRUE(make_folder(snapshot).ok());
    EXPECT_TRUE(write_file_atomic(snapshot + "/config.json", "{}").ok());
    if (branch.empty()) return snapshot;
    EXPECT_TRUE(make_folder(folder + "/refs").ok());
    EXPECT_TRUE(write_file_atomic(cat(folder, "/refs/", branch), commit + "\n").ok());
    return snapshot;
  }
  std::string home_;
};

TEST_F(HubCache, ANameMeansTheSnapshotOfMain) {
  add("models--Org--Name", "aaa1");
  const std::string snapshot = add("models--Org--Name", "bbb2", "main");
  EXPECT_EQ(*locate_model("Org/Name"), snapshot);
  EXPECT_EQ(*locate_model("Org/Name@aaa"), add("models--Org--Name", "aaa1"));
  const std::string single = add("models--gpt2", "ccc3", "main");
  EXPECT_EQ(*locate_model("gpt2"), single);
  EXPECT_EQ(*locate_model(snapshot), snapshot) << "a path is itself";
}

TEST_F(HubCache, ASingleSnapshotNeedsNoRef) {
  const std::string only = add("models--Org--Name", "aaa1");
  EXPECT_EQ(*locate_model("Org/Name"), only);
  add("models--Org--Name", "aab2");
  EXPECT_THAT(locate_model("Org/Name").status().message(),
              AllOf(HasSubstr("several revisions"), HasSubstr("aaa1, aab2")));
  EXPECT_THAT(
      locate_model("Org/Name@v2").status().message(),
      AllOf(HasSubstr("no revision 'v2'"), HasSubstr("hf download Org/Name --revision v2")));
}

TEST_F(HubCache, WhatIsNotThereIsSaidWithTheCommandThatBringsIt) {
  const Status none = locate_model("Org/Name").status();
  EXPECT_EQ(none.code(), Code::kNotFound);
  EXPECT_THAT(none.message(), AllOf(HasSubstr("Org/Name: there is no such model folder"),
                                    HasSubstr(home_ + "/hub"), HasSubstr("hf download Org/Name")));
  EXPECT_EQ(locate_model("/nowhere/model").status().message(),
            "/nowhere/model: there is no such model folder");
  EXPECT_EQ(
      locate_model("runs/a/export/actor").status().message(),
      "runs/a/export/actor: there is no such model folder; it is what a run leaves at its end: "
      "train that one first");
}

TEST_F(HubCache, AMisspeltPathIsNoNameOfTheHub) {
  const std::string folder = home_ + "/data";
  ASSERT_TRUE(make_folder(folder).ok());
  ASSERT_TRUE(write_file_atomic(folder + "/prompts.jsonl", "").ok());
  EXPECT_EQ(locate_data(folder + "/promptz.jsonl").status().message(),
            cat(folder, "/promptz.jsonl: there is no such file, folder or data set; did you mean ",
                folder, "/prompts.jsonl?"));
  EXPECT_EQ(locate_data(folder + "/other").status().message(),
            cat(folder, "/other: there is no such file, folder or data set"));
  const std::string before = std::filesystem::current_path();
  std::filesystem::current_path(home_);
  ASSERT_TRUE(make_folder("data/own").ok());
  const std::string relative = locate_data("data/own/train.jsonl").status().message();
  std::filesystem::current_path(before);
  EXPECT_EQ(relative, "data/own/train.jsonl: there is no such file, folder or data set");
}

TEST_F(HubCache, ARunIsNoModelAndNamesItsModels) {
  const std::string model = home_ + "/run/export/actor";
  ASSERT_TRUE(make_folder(model).ok());
  ASSERT_TRUE(write_file_atomic(model + "/config.json", "{}").ok());
  for (const char* folder : {"/run", "/run/export"})
    EXPECT_EQ(locate_model(home_ + folder).status().message(),
              cat(home_, folder, ": is no model's folder; write which one of it: ", model));
  EXPECT_EQ(*locate_model(model), model);
  EXPECT_THAT(locate_model(home_ + "/run/export/acter").status().message(),
              HasSubstr(cat("there is no such model folder; did you mean ", model, "?")));
}

TEST_F(HubCache, ACheckpointIsNoModel) {
  const std::string folder = home_ + "/checkpoint";
  ASSERT_TRUE(make_folder(folder).ok());
  for (const char* name : {"manifest.json", "state.json"})
    ASSERT_TRUE(write_file_atomic(join_path(folder, name), "{}").ok());
  EXPECT_THAT(
      locate_model(folder).status().message(),
      HasSubstr("is a checkpoint of a run, not a model; make one of it: braid export " + folder));
}

TEST_F(HubCache, DataSetsMayNameFilesInside) {
  const std::string snapshot = add("datasets--openai--gsm8k", "ddd4", "main");
  EXPECT_EQ(*locate_data("openai/gsm8k"), snapshot);
  EXPECT_EQ(*locate_data("openai/gsm8k/main/train-*.parquet"), snapshot + "/main/train-*.parquet");
  EXPECT_THAT(locate_data("openai/other").status().message(),
              HasSubstr("hf download openai/other --repo-type dataset"));
  EXPECT_EQ(locate_data("data/train.jsonl").status().message(),
            "data/train.jsonl: there is no such file, folder or data set");
  for (const char* itself : {"-", "task:reverse", "a*.jsonl"})
    EXPECT_EQ(*locate_data(itself), itself);
}

TEST_F(HubCache, AddressesAreToBeDownloadedFirst) {
  const struct {
    const char *address, *advice;
  } cases[] = {
      {"https://example.org/a.jsonl", "download it first (curl -LO) and write the path"},
      {"s3://bucket/a.parquet", "download it first (aws s3 cp)"},
      {"gs://bucket/a/*.jsonl", "download it first (gcloud storage cp)"},
      {"abfs://x/y", "an address is not read; download it first and write the path"},
      {"hf://datasets/openai/gsm8k",
       "'hf download openai/gsm8k --repo-type dataset' and write openai/gsm8k"},
      {"https://huggingface.co/datasets/openai/gsm8k/resolve/main/a.jsonl",
       "'hf download openai/gsm8k --repo-type dataset'"},
      {"file:///data/a.jsonl", "write the path alone: /data/a.jsonl"},
  };
  for (const auto& test : cases) {
    const Status refused = locate_data(test.address).status();
    EXPECT_EQ(refused.code(), Code::kInvalidInput);
    EXPECT_THAT(refused.message(), AllOf(HasSubstr(test.address), HasSubstr(test.advice)));
  }
  EXPECT_THAT(locate_model("https://huggingface.co/Qwen/Qwen3-0.6B").status().message(),
              HasSubstr("'hf download Qwen/Qwen3-0.6B' and write Qwen/Qwen3-0.6B"));
}

TEST_F(HubCache, TheFolderFollowsTheEnvironment) {
  EXPECT_EQ(hub_cache_folder(), home_ + "/hub");
  ::setenv("HF_HUB_CACHE", "/elsewhere", 1);
  EXPECT_EQ(hub_cache_folder(), "/elsewhere");
  ::unsetenv("HF_HUB_CACHE");
  ::unsetenv("HF_HOME");
  ::setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(hub_cache_folder(), "/cache/huggingface/hub");
  ::unsetenv("XDG_CACHE_HOME");
}

}  // namespace
}  // namespace braid::inline host
