#include "comm/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/text.h"

namespace braid::inline comm {
namespace {

using testing::HasSubstr;

Environment variables(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
}

const std::map<std::string, std::string> kTorchrun = {{"RANK", "5"},
                                                      {"WORLD_SIZE", "8"},
                                                      {"LOCAL_RANK", "1"},
                                                      {"LOCAL_WORLD_SIZE", "4"},
                                                      {"MASTER_ADDR", "node0"},
                                                      {"MASTER_PORT", "29400"},
                                                      {"TORCHELASTIC_RUN_ID", "job7"},
                                                      {"TORCHELASTIC_RESTART_COUNT", "2"}};

TEST(Membership, AloneWithoutVariables) {
  const auto found = read_membership(variables({{"SLURM_PROCID", "0"}}));  // a batch script
  ASSERT_TRUE(found.ok());
  EXPECT_FALSE(found->has_value());
}

TEST(Membership, OfTorchrun) {
  const auto found = read_membership(variables(kTorchrun));
  ASSERT_TRUE(found.ok()) << found.status().message();
  const Membership expected{.global_rank = 5,
                            .world_size = 8,
                            .local_rank = 1,
                            .local_size = 4,
                            .master_host = "node0",
                            .master_port = 29400,
                            .store_exists = true,
                            .started_by = "torchrun",
                            .attempt = "job7-2"};
  EXPECT_EQ(**found, expected);
  EXPECT_FALSE((*found)->one_machine());
}

TEST(Membership, StandardVariablesServeTheirOwnStore) {
  auto values = kTorchrun;
  values.erase("TORCHELASTIC_RUN_ID");
  EXPECT_FALSE((*read_membership(variables(values)))->store_exists);
  values["BRAID_LAUNCHER"] = "77";
  EXPECT_TRUE((*read_membership(variables(values)))->store_exists);
}

TEST(Membership, MissingAndWrongVariablesAreNamed) {
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    auto values = kTorchrun;
    values.erase(name);
    const auto found = read_membership(variables(values));
    ASSERT_FALSE(found.ok()) << name;
    EXPECT_THAT(found.status().message(), HasSubstr(cat("but not ", name, "; a rank needs")));
  }
  auto values = kTorchrun;
  values["RANK"] = "8";
  EXPECT_THAT(read_membership(variables(values)).status().message(),
              HasSubstr("RANK is '8', expected a whole number from 0 to 7"));
}

TEST(Membership, OfSrun) {
  const std::map<std::string, std::string> values = {{"SLURM_STEP_NUM_TASKS", "8"},
                                                     {"SLURM_PROCID", "6"},
                                                     {"SLURM_LOCALID", "2"},
                                                     {"SLURM_STEP_NUM_NODES", "2"},
                                                     {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"},
                                                     {"SLURM_STEP_NODELIST", "gpu[003-004]"},
                                                     {"SLURM_JOB_ID", "91"},
                                                     {"SLURM_STEP_ID", "1"}};
  const auto found = read_membership(variables(values));
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ((*found)->global_rank, 6);
  EXPECT_EQ((*found)->local_size, 4);
  EXPECT_EQ((*found)->master_host, "gpu003");
  EXPECT_FALSE((*found)->store_exists);
  EXPECT_EQ((*found)->attempt, "91.1-0");
  EXPECT_GE((*found)->master_port, 20000);
}

TEST(Membership, OfMpirun) {
  std::map<std::string, std::string> values = {{"OMPI_COMM_WORLD_SIZE", "4"},
                                               {"OMPI_COMM_WORLD_RANK", "3"},
                                               {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                                               {"PMIX_NAMESPACE", "prterun-17@1"}};
  const auto found = read_membership(variables(values));
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ((*found)->master_host, "127.0.0.1");
  EXPECT_TRUE((*found)->one_machine());
  values["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
  values["OMPI_COMM_WORLD_LOCAL_RANK"] = "1";
  EXPECT_THAT(read_membership(variables(values)).status().message(), HasSubstr("MASTER_ADDR"));
}

TEST(SlurmHosts, First) {
  EXPECT_EQ(*first_slurm_host("login1"), "login1");
  EXPECT_EQ(*first_slurm_host("a,b[1-3]"), "a");
  EXPECT_EQ(*first_slurm_host("gpu[003-006,011],login1"), "gpu003");
  EXPECT_EQ(*first_slurm_host("rack[1-2]node[07,09]"), "rack1node07");
  for (const char* bad : {"", "gpu[", "gpu[x]", "gpu[]", "a b", "[1-2", "a[1]]"})
    EXPECT_FALSE(first_slurm_host(bad).ok()) << bad;
}

TEST(Threads, AreDividedAmongTheRanksOfAMachine) {
  EXPECT_EQ(threads_per_rank(8, 3), 2);
  EXPECT_EQ(threads_per_rank(2, 4), 1);
}

TEST(Membership, ManyRanksAreSaidAsRuns) {
  EXPECT_EQ(rank_list({}), "");
  EXPECT_EQ(rank_list({0, 1, 2, 5}), "0, 1, 2, 5");
  EXPECT_EQ(rank_list({0, 1, 2, 3, 4, 6, 7, 9, 11, 12, 13}), "0 to 4, 6, 7, 9, 11 to 13");
}

// What a call says of its peers is as long in a group of thousands.
TEST(Membership, ManyRanksAreSaidBriefly) {
  std::vector<int64_t> strided, scattered;
  for (int64_t i = 0; i < 4096; ++i) strided.push_back(4 * i), scattered.push_back(i * i);
  EXPECT_EQ(rank_list(strided), "0 to 16380 by 4");
  const std::string text = rank_list(scattered);
  EXPECT_EQ(text,
            "0, 1, 4, 9, 16, 25, 36, 49, 64, 81, 100, 121, 144, 169, 196, 225, 256 and 4079 more");
  EXPECT_EQ(rank_list({8, 12, 16, 20, 24, 28, 32, 36, 37}), "8 to 36 by 4, 37");
}

}  // namespace
}  // namespace braid::inline comm
