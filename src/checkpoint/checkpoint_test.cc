#include "checkpoint/checkpoint.h"
#include "base/testing.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "base/text.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/manifest.h"
#include "checkpoint/writing_folder.h"
#include "host/file.h"
#include "host/progress.h"
#include "host/sha256.h"
#include "nn/safetensors.h"

namespace braid::inline checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

// A fresh folder of the test, removed at its end.
class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = join_path(testing::TempDir(), cat("checkpoints-", ::getpid()));
    fs::remove_all(folder_);
    place_ = {folder_, "this job"};
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::vector<int64_t> steps() const {
    std::vector<int64_t> out;
    for (const CheckpointInfo& info : *list_checkpoints(folder_)) out.push_back(info.at.step);
    return out;
  }

  std::string folder_;
  SavePlace place_;
};

// Of what checkpoint.resume means.
Result<std::string> resume_path(const std::string& resume, const std::string& folder,
                                bool all_files = false) {
  BRAID_ASSIGN(const ResumedCheckpoint found, ResumedCheckpoint::find(resume, folder, all_files));
  return found.path();
}

CheckpointState state_of(int64_t step, int64_t size = 64) {
  CheckpointState state;
  state.tensors["actor.weights"] = {{"w", at::full({size}, static_cast<double>(step))},
                                    {"b", at::arange(3, at::kFloat)}};
  state.tensors["actor.optimizer"] = {{"w.exp_avg", at::full({size}, -static_cast<double>(step))}};
  state.numbers = {{"step", step}, {"kl_coef", 0.1 + 0.2}};
  return state;
}

void save(const std::string& folder, int64_t step,
          const std::map<std::string, double>& metrics = {}) {
  const auto saved = save_checkpoint(folder, {step}, metrics, state_of(step));
  ASSERT_TRUE(saved.ok()) << saved.status().message();
}

void flip_bit(const std::string& path, size_t offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  const char byte = static_cast<char>(file.get() ^ 4);
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(byte);
}

TEST_F(CheckpointTest, GivesBackWhatWasSaved) {
  save(folder_, 7, {{"reward/raw_mean", 0.25}, {"nan", std::nan("")}});
  const std::string path = join_path(folder_, "step-000007");
  auto loaded = CheckpointReader::open(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded->numbers()["kl_coef"].get<double>(), 0.1 + 0.2);
  EXPECT_TRUE(loaded->has("actor.optimizer"));
  const NamedTensors weights = *loaded->whole("actor.weights");
  ASSERT_EQ(weights.size(), 2u);
  for (const auto& [name, tensor] : weights)
    EXPECT_TRUE(at::equal(tensor, name == "w" ? at::full({64}, 7.0) : at::arange(3, at::kFloat)));
  EXPECT_EQ(*checkpoint_metrics(path), (std::map<std::string, double>{{"reward/raw_mean", 0.25}}));
  EXPECT_EQ(*verify_checkpoint(path), 7);
  EXPECT_THAT(*list_folder(folder_), ElementsAre("step-000007"));
}

TEST_F(CheckpointTest, SavingAStepAgainReplacesIt) {
  save(folder_, 7);
  CheckpointState other = state_of(7);
  other.numbers["kl_coef"] = 2.5;
  ASSERT_TRUE(save_checkpoint(folder_, {7}, {}, other).ok());
  EXPECT_EQ((*checkpoint_numbers(join_path(folder_, "step-000007")))["kl_coef"], 2.5);
  EXPECT_THAT(*list_folder(folder_), ElementsAre("step-000007"));
}

TEST_F(CheckpointTest, KeepsTheLastAndTheBest) {
  CheckpointConfig config;
  config.keep_last = 2;
  config.keep_best = "reward/raw_mean";
  const double rewards[] = {0.1, 0.9, 0.3, 0.2, 0.4};
  for (int64_t step = 1; step <= 5; ++step) {
    save(folder_, step, {{"reward/raw_mean", rewards[step - 1]}});
    ASSERT_TRUE(apply_retention(folder_, {step}, config).ok());
  }
  EXPECT_THAT(steps(), ElementsAre(2, 4, 5));
  config.keep_best = "min:reward/raw_mean";
  config.keep_last = 1;
  ASSERT_TRUE(apply_retention(folder_, {5}, config).ok());
  EXPECT_THAT(steps(), ElementsAre(4, 5));
}

TEST_F(CheckpointTest, RemovesTheFutureOfARunThatWentBack) {
  for (const int64_t step : {2, 4, 6}) save(folder_, step);
  save(folder_, 3);
  ASSERT_TRUE(apply_retention(folder_, {3}, {}).ok());
  EXPECT_THAT(steps(), ElementsAre(2, 3));
}

// What was saved within a step comes after the step before it, and goes with the next complete one.
TEST_F(CheckpointTest, AnOpenStepIsKeptUntilTheNextCheckpoint) {
  for (const int64_t step : {1, 2}) save(folder_, step);
  const auto open = save_checkpoint(folder_, {2, true}, {}, state_of(2));
  ASSERT_TRUE(open.ok()) << open.status().message();
  ASSERT_TRUE(apply_retention(folder_, {2, true}, {}).ok());
  EXPECT_THAT(*list_folder(folder_), ElementsAre("step-000001", "step-000002", "step-000002-open"));
  EXPECT_EQ(*resume_path("auto", folder_), *open);
  save(folder_, 3);
  ASSERT_TRUE(apply_retention(folder_, {3}, {}).ok());
  EXPECT_THAT(*list_folder(folder_), ElementsAre("step-000002", "step-000003"));
}

// A folder has one writer; the claim goes with its process or its handle.
TEST_F(CheckpointTest, AFolderHasOneWriter) {
  {
    const auto claim = claim_folder(folder_, "checkpoint.dir");
    ASSERT_TRUE(claim.ok()) << claim.status().message();
    EXPECT_THAT(claim_folder(folder_, "checkpoint.dir").status().message(),
                HasSubstr("checkpoint.dir: another process is writing to " + folder_));
  }
  EXPECT_TRUE(claim_folder(folder_, "checkpoint.dir").ok());
}

TEST_F(CheckpointTest, UnreadableCheckpointsAreNeitherCountedNorRemoved) {
  for (const int64_t step : {1, 2, 3}) save(folder_, step);
  flip_bit(join_path(folder_, "step-000002/manifest.json"), 20);
  CheckpointConfig config;
  config.keep_last = 2;
  ASSERT_TRUE(apply_retention(folder_, {3}, config).ok());
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3));
}

TEST_F(CheckpointTest, ResumeFollowsTheConfiguration) {
  EXPECT_EQ(*resume_path("auto", folder_), "");
  for (const int64_t step : {1, 2}) save(folder_, step);
  EXPECT_EQ(*resume_path("none", folder_), "");
  EXPECT_EQ(*resume_path("auto", folder_), join_path(folder_, "step-000002"));
  const std::string first = join_path(folder_, "step-000001");
  EXPECT_EQ(*resume_path(first, folder_), first);
  EXPECT_THAT(resume_path("/no/such/place", folder_).status().message(),
              HasSubstr("/no/such/place is not a checkpoint"));
  EXPECT_THAT(resume_path(folder_, folder_).status().message(),
              HasSubstr("the newest one in it is " + join_path(folder_, "step-000002")));
}

// What a run finds that goes on: before it loads, and when it reads the tensors.
Status resumed(const std::string& folder) {
  const auto path = resume_path("auto", folder, true);
  if (!path.ok()) return path.status();
  auto reader = CheckpointReader::open(*path);
  if (!reader.ok()) return reader.status();
  for (const char* group : {"actor.weights", "actor.optimizer"})
    if (const Status read = reader->whole(group).status(); !read.ok())
      return refused_as_damaged(*path, read);
  return ok_status();
}

// Every way to damage a file: the newest checkpoint is refused with the file's name, and the
// previous one is offered; where that is damaged as well, the one before it.
TEST_F(CheckpointTest, DamageIsRefusedByNameAndThePreviousOneOffered) {
  const std::vector<std::string> files = {
      "actor.weights.safetensors", "actor.optimizer.safetensors", "state.json", "manifest.json"};
  for (const std::string& name : files)
    for (const std::string damage : {"flip", "truncate", "remove"}) {
      if (name == "manifest.json" && damage == "remove") continue;
      fs::remove_all(folder_);
      for (const int64_t step : {1, 2, 3}) save(folder_, step);
      const std::string path = join_path(folder_, "step-000003/" + name);
      if (damage == "flip") flip_bit(path, fs::file_size(path) / 2);
      if (damage == "truncate") fs::resize_file(path, fs::file_size(path) - 1);
      if (damage == "remove") fs::remove(path);
      const Status refused = resumed(folder_);
      if (damage == "truncate" && name == "manifest.json") {  // only the last newline went
        EXPECT_TRUE(refused.ok());
        continue;
      }
      EXPECT_EQ(refused.code(), Code::kDataLoss) << name << " " << damage;
      EXPECT_THAT(refused.message(), HasSubstr(path)) << damage;
      EXPECT_THAT(refused.message(),
                  HasSubstr("checkpoint.resume=" + join_path(folder_, "step-000002")));
    }
  flip_bit(join_path(folder_, "step-000002/state.json"), 5);
  flip_bit(join_path(folder_, "step-000003/state.json"), 5);
  EXPECT_THAT(resume_path("auto", folder_).status().message(),
              HasSubstr("checkpoint.resume=" + join_path(folder_, "step-000001")));
  flip_bit(join_path(folder_, "step-000001/state.json"), 5);
  EXPECT_THAT(resume_path("auto", folder_).status().message(),
              HasSubstr("no complete earlier checkpoint"));
}

// Every rank that finds damage offers the one before, without a look at its tensors: what is wrong
// with them is said when that is read.
TEST_F(CheckpointTest, WhatIsOfferedIsNotRead) {
  for (const int64_t step : {1, 2}) save(folder_, step);
  for (const char* step : {"step-000001", "step-000002"}) {
    const std::string path = join_path(folder_, cat(step, "/actor.weights.safetensors"));
    flip_bit(path, fs::file_size(path) - 1);
  }
  const int64_t before = safetensors_bytes_read();
  const Status refused =
      refused_as_damaged(join_path(folder_, "step-000002"), {Code::kDataLoss, "a flipped bit"});
  EXPECT_EQ(safetensors_bytes_read(), before);
  EXPECT_THAT(refused.message(), HasSubstr("step-000001"));
  fs::remove_all(join_path(folder_, "step-000002"));
  EXPECT_THAT(resumed(folder_).message(), HasSubstr("step-000001/actor.weights.safetensors"));
}

TEST_F(CheckpointTest, TooLittleSpaceIsAnErrorBeforeWriting) {
  ASSERT_TRUE(make_folder(folder_).ok());
  EXPECT_TRUE(check_free_space(folder_, 1).ok());
  const Status status = check_free_space(folder_, int64_t{1} << 62);
  EXPECT_EQ(status.code(), Code::kIo);
  EXPECT_THAT(status.message(), HasSubstr("4194304.0 TiB"));
  EXPECT_THAT(status.message(), HasSubstr("checkpoint.keep_last"));
}

TEST_F(CheckpointTest, BadOptionsNameTheKey) {
  CheckpointConfig config;
  EXPECT_TRUE(validate(config).ok());
  config.keep_last = 0;
  EXPECT_THAT(validate(config).message(), HasSubstr("checkpoint.keep_last"));
  config = {};
  config.every_steps = -1;
  EXPECT_THAT(validate(config).message(), HasSubstr("checkpoint.every_steps"));
  config = {};
  config.keep_best = "min:";
  EXPECT_THAT(validate(config).message(), HasSubstr("checkpoint.keep_best"));
}

// A checkpoint whose files hold whole tensors and have one hash each, as format 1 wrote them.
void save_as_format_1(const std::string& path) {
  ASSERT_TRUE(make_folder(path).ok());
  Json files = Json::object();
  const auto list = [&](const std::string& name) {
    const std::string text = *read_file(join_path(path, name));
    files[name] = {{"bytes", text.size()}, {"sha256", sha256_hex(text)}};
  };
  const at::Tensor w = at::arange(12, at::kFloat).view({3, 4});
  ASSERT_TRUE(write_safetensors(join_path(path, "actor.weights.safetensors"), {{"w", w}}).ok());
  ASSERT_TRUE(write_file_atomic(join_path(path, "state.json"), "{\"step\": 4}\n").ok());
  list("actor.weights.safetensors");
  list("state.json");
  Json manifest = {{"format", 1}, {"step", 4}, {"files", files}, {"metrics", Json::object()}};
  manifest["sha256"] = sha256_hex(manifest.dump());
  ASSERT_TRUE(write_file_atomic(join_path(path, "manifest.json"), manifest.dump(2) + "\n").ok());
}

TEST_F(CheckpointTest, ReadsWhatFormat1Wrote) {
  const std::string path = join_path(folder_, "step-000004");
  save_as_format_1(path);
  EXPECT_EQ(*resume_path("auto", folder_, true), path);
  const at::Tensor part = at::empty({2, 2});
  ASSERT_EQ(CheckpointReader::open(path)->read("actor.weights", {{"w", {3, 4}, {1, 2}, part}}),
            Status());
  EXPECT_TRUE(at::equal(part, at::tensor({6.0F, 7.0F, 10.0F, 11.0F}).view({2, 2})));
  flip_bit(join_path(path, "actor.weights.safetensors"), 130);
  EXPECT_EQ(verify_checkpoint(path).status().code(), Code::kDataLoss);
  EXPECT_THAT(CheckpointReader::open(path)->whole("actor.weights").status().message(),
              HasSubstr("actor.weights.safetensors: its content does not match"));
}

TEST_F(CheckpointTest, AnUnknownFormatIsRefusedByItsNumber) {
  const std::string path = join_path(folder_, "step-000004");
  save_as_format_1(path);
  Json manifest = *parse_json(*read_file(join_path(path, "manifest.json")), "manifest");
  manifest["format"] = 3;
  manifest.erase("sha256");
  manifest["sha256"] = sha256_hex(manifest.dump());
  ASSERT_TRUE(write_file_atomic(join_path(path, "manifest.json"), manifest.dump()).ok());
  EXPECT_THAT(resume_path("auto", folder_).status().message(),
              HasSubstr("format 3, this program reads 1 to 2"));
}

// A tensor [6, 4] in rectangles of several ranks, which take turns so that each file has some.
std::vector<CheckpointState> shares_of(const at::Tensor& whole, int64_t ranks) {
  std::vector<CheckpointState> out(ranks);
  const auto add = [&](int64_t rank, std::vector<int64_t> offset, std::vector<int64_t> extent) {
    const at::Tensor part =
        whole.narrow(0, offset[0], extent[0]).narrow(1, offset[1], extent[1]).clone();
    out[rank % ranks].tensors["actor.weights"].emplace_back("w", whole.sizes().vec(), offset, part);
  };
  add(0, {0, 0}, {2, 4});
  add(1, {2, 0}, {1, 1});
  add(2, {2, 1}, {1, 3});
  add(3, {3, 0}, {3, 2});
  add(4, {3, 2}, {3, 2});
  for (int64_t rank = 0; rank < ranks; ++rank)
    out[rank].numbers["roles"][cat("role-", rank)] = {{"updates", rank}};
  out[0].numbers["step"] = 5;
  return out;
}

std::string save_shares(const std::string& folder, const std::vector<CheckpointState>& shares) {
  const auto ranks = std::ssize(shares);
  const SavePlace place{folder, "this job"};
  EXPECT_EQ(prepare_save(place, {5}, 1000), Status());
  for (int64_t rank = ranks - 1; rank >= 0; --rank)
    EXPECT_EQ(write_share(place, {5}, {rank, ranks}, shares[rank]), Status());
  const auto path = commit_save(place, {5}, ranks, {});
  EXPECT_TRUE(path.ok()) << path.status().message();
  return *path;
}

// Whatever ranks wrote, each rectangle is read from the files that have something of it.
TEST_F(CheckpointTest, SharesOfSeveralRanksAreOneCheckpoint) {
  const at::Tensor whole = at::arange(24, at::kFloat).view({6, 4});
  for (const int64_t ranks : {1, 2, 3, 5}) {
    SCOPED_TRACE(ranks);
    const std::string path = save_shares(folder_, shares_of(whole, ranks));
    const Json numbers = *checkpoint_numbers(path);
    EXPECT_EQ(numbers["roles"].size(), static_cast<size_t>(ranks));
    EXPECT_EQ(verify_checkpoint(path).status(), Status());
    for (const double first : {0.0, 0.5, 0.9}) {
      CheckpointReader reader = *CheckpointReader::open(path, first);
      EXPECT_TRUE(at::equal((*reader.whole("actor.weights"))[0].second, whole));
      for (int64_t row = 0; row < 5; ++row)
        for (int64_t column = 0; column < 3; ++column) {
          const at::Tensor part = at::empty({2, 2});
          ASSERT_EQ(reader.read("actor.weights", {{"w", {6, 4}, {row, column}, part}}), Status());
          EXPECT_TRUE(at::equal(part, whole.narrow(0, row, 2).narrow(1, column, 2)));
        }
    }
    for (const std::string& name : *list_folder(path)) EXPECT_NE(name[0], '.') << name;
  }
}

// Files that a reader wants nothing of are not opened, and damage in them is not its matter.
TEST_F(CheckpointTest, OnlyWhatIsWantedIsRead) {
  const at::Tensor whole = at::arange(24, at::kFloat).view({6, 4});
  const std::string path = save_shares(folder_, shares_of(whole, 5));
  const std::string last = join_path(path, "actor.weights.rank-0004.safetensors");
  flip_bit(last, fs::file_size(last) - 1);
  const at::Tensor top = at::empty({2, 4}), all = at::empty({6, 4});
  CheckpointReader reader = *CheckpointReader::open(path);
  EXPECT_EQ(reader.read("actor.weights", {{"w", {6, 4}, {0, 0}, top}}), Status());
  const Status damaged = reader.read("actor.weights", {{"w", all}});
  EXPECT_EQ(damaged.code(), Code::kDataLoss);
  EXPECT_THAT(damaged.message(), HasSubstr(last + ": tensor w[3:6, 2:4]"));
  fs::remove(last);
  EXPECT_THAT(resume_path("auto", folder_, true).status().message(),
              HasSubstr(last + ": is missing"));
  EXPECT_THAT(CheckpointReader::open(path)->whole("actor.weights").status().message(),
              HasSubstr(last + ": is missing"));
}

// Two halves of a model on ranks 0 and 1, and 2 and 3; of each half both have a part of every
// tensor, as replicas write it.
std::string save_halves(const std::string& folder) {
  std::vector<CheckpointState> shares(4);
  for (int64_t rank = 0; rank < 4; ++rank)
    for (int64_t layer = rank / 2 * 2; layer < rank / 2 * 2 + 2; ++layer)
      shares[rank].tensors["actor.weights"].emplace_back(
          cat("layers.", layer), std::vector<int64_t>{4, 2}, std::vector<int64_t>{rank % 2 * 2, 0},
          at::full({2, 2}, static_cast<double>(10 * layer + rank)));
  return save_shares(folder, shares);
}

// Of these layers rows [begin, end) as one of `ranks` reads them; files that it opens for that.
int64_t opened_for(const std::string& path, int64_t rank, int64_t ranks,
                   const std::vector<int64_t>& layers, int64_t begin, int64_t end) {
  CheckpointReader reader =
      *CheckpointReader::open(path, static_cast<double>(rank) / static_cast<double>(ranks));
  std::vector<SavedSlice> wanted;
  for (const int64_t layer : layers)
    wanted.emplace_back(cat("layers.", layer), std::vector<int64_t>{4, 2},
                        std::vector<int64_t>{begin, 0}, at::empty({end - begin, 2}));
  EXPECT_EQ(reader.read("actor.weights", wanted), Status());
  for (size_t i = 0; i < wanted.size(); ++i)
    for (int64_t row = begin; row < end; ++row)
      EXPECT_EQ(wanted[i].values[row - begin][0].item<double>(),
                static_cast<double>(10 * layers[i] + layers[i] / 2 * 2 + row / 2));
  EXPECT_EQ(reader.tensors("actor.weights")->size(), 4U);
  return reader.files_opened();
}

// However many ranks wrote: as many files as have something of what is wanted.
TEST_F(CheckpointTest, ARankOpensTheFilesOfWhatItWantsAlone) {
  const std::string path = save_halves(folder_);
  for (int64_t rank = 0; rank < 4; ++rank) {  // as they wrote, each with all of its half
    const int64_t layer = rank / 2 * 2;
    EXPECT_EQ(opened_for(path, rank, 4, {layer, layer + 1}, 0, 4), 2) << rank;
    EXPECT_EQ(opened_for(path, rank, 4, {layer, layer + 1}, rank % 2 * 2, rank % 2 * 2 + 2), 1);
  }
  for (int64_t rank = 0; rank < 2; ++rank)  // two that split rows instead of layers
    EXPECT_EQ(opened_for(path, rank, 2, {0, 1, 2, 3}, 2 * rank, 2 * rank + 2), 2) << rank;
  EXPECT_EQ(opened_for(path, 0, 3, {0}, 1, 2), 1);  // of three the first, in uneven parts
  EXPECT_EQ(opened_for(path, 1, 3, {1}, 1, 4), 2);
  EXPECT_EQ(opened_for(path, 2, 3, {2, 3}, 0, 1), 1);
  EXPECT_EQ(opened_for(path, 0, 1, {0, 1, 2, 3}, 0, 4), 4);
}

// A manifest of before: every header is looked at, until all that is wanted is there.
TEST_F(CheckpointTest, AManifestWithoutSlicesIsReadByTheHeaders) {
  const std::string path = save_halves(folder_);
  Manifest manifest = *read_manifest(path);
  manifest.tensors.reset();
  ASSERT_EQ(write_manifest(path, manifest), Status());
  EXPECT_EQ(opened_for(path, 3, 4, {2, 3}, 0, 4), 4);
  EXPECT_EQ(CheckpointReader::open(path)->whole("actor.weights")->size(), 4U);
}

// Who trusts a manifest that is of other files would miss what they have.
TEST_F(CheckpointTest, AManifestThatSaysOtherSlicesThanAHeaderIsRefusedByFile) {
  const std::string path = save_halves(folder_);
  const Manifest right = *read_manifest(path);
  const at::Tensor rows = at::empty({2, 2});
  const auto refused = [&](const std::string& said, int64_t begin) {
    Manifest manifest = right;
    (*manifest.tensors)["actor.weights"]["layers.1"] = said;
    EXPECT_EQ(write_manifest(path, manifest), Status());
    const Status status = CheckpointReader::open(path)->read(
        "actor.weights", {{"layers.1", {4, 2}, {begin, 0}, rows}});
    EXPECT_EQ(status.code(), Code::kDataLoss);
    return status.message();
  };
  const std::string first = join_path(path, "actor.weights.rank-0000.safetensors");
  EXPECT_EQ(refused("[4,2] 0[2:4,0:2] 1[0:2,0:2]", 2),
            first + ": its header has layers.1[0:2, 0:2], which the manifest does not say of it");
  EXPECT_EQ(refused("[4,2] 0[0:2,0:2] 0[2:4,0:2]", 2),
            first + ": its header has no layers.1[2:4, 0:2], which the manifest says of it");
  EXPECT_THAT(refused("[4,2] 0[0:2,0:2] 7[2:4,0:2]", 2),
              HasSubstr("rank 7 has layers.1[2:4, 0:2], but lists no file of it"));
  EXPECT_THAT(refused("[4,2] 0[0:2,0:3]", 0), HasSubstr("says no slices of tensor layers.1"));
}

TEST_F(CheckpointTest, APartThatNoFileHasIsAnError) {
  const at::Tensor whole = at::arange(24, at::kFloat).view({6, 4});
  auto shares = shares_of(whole, 2);
  shares[1].tensors["actor.weights"].pop_back();
  const std::string path = save_shares(folder_, shares);
  EXPECT_THAT(CheckpointReader::open(path)->whole("actor.weights").status().message(),
              HasSubstr("a part of tensor w is in no file: of w[0:6, 0:4] 6 numbers are missing"));
}

// As many numbers as the tensor has, some of them twice, and in their place none.
TEST_F(CheckpointTest, SlicesThatOverlapDoNotFillAHole) {
  const at::Tensor whole = at::arange(12, at::kFloat).view({6, 2});
  const auto rows = [&](int64_t begin, int64_t end) {
    return SavedSlice("w", {6, 2}, {begin, 0}, whole.narrow(0, begin, end - begin).clone());
  };
  std::vector<CheckpointState> shares(2);
  shares[0].tensors["actor.weights"] = {rows(0, 4)};
  shares[1].tensors["actor.weights"] = {rows(2, 4)};
  const std::string path = save_shares(folder_, shares);
  Manifest listless = *read_manifest(path);
  listless.tensors.reset();
  const std::string file = join_path(path, "actor.weights.rank-0001.safetensors");
  for (const bool listed : {true, false}) {
    if (!listed) {
      ASSERT_EQ(write_manifest(path, listless), Status());
    }
    const Status refused = CheckpointReader::open(path)->whole("actor.weights").status();
    EXPECT_EQ(refused.code(), Code::kDataLoss);
    EXPECT_EQ(refused.message(), cat(file, ": has numbers of w[2:4, 0:2] that ",
                                     join_path(path, "actor.weights.rank-0000.safetensors"),
                                     " has too, in w[0:4, 0:2]"));
  }
  shares.push_back(shares[0]);  // within one file, and of a part alone
  shares[2].tensors["actor.weights"] = {rows(4, 5), rows(4, 6)};
  save_shares(folder_, shares);
  const at::Tensor end = at::empty({2, 2});
  EXPECT_THAT(
      CheckpointReader::open(path)->read("actor.weights", {{"w", {6, 2}, {4, 0}, end}}).message(),
      HasSubstr("rank-0002.safetensors: has numbers of w[4:6, 0:2] that it has too, in w[4:5"));
}

// Nothing is committed before all ranks have written, nor where one has failed.
TEST_F(CheckpointTest, ARankThatDoesNotWriteLeavesTheCheckpointBefore) {
  const auto shares = shares_of(at::arange(24, at::kFloat).view({6, 4}), 3);
  save(folder_, 4);
  ASSERT_EQ(prepare_save(place_, {5}, 1000), Status());
  for (const int64_t rank : {0, 2})
    ASSERT_EQ(write_share(place_, {5}, {rank, 3}, shares[rank]), Status());
  EXPECT_THAT(list_folder(folder_).value(), testing::Contains("step-000004"));
  EXPECT_EQ(*resume_path("auto", folder_), join_path(folder_, "step-000004"));
  int looks = 0;
  const auto missing = commit_save(place_, {5}, 3, {}, [&] { return ++looks == 3; });
  EXPECT_THAT(missing.status().message(), HasSubstr("rank 1 has not written its share"));
  EXPECT_THAT(*list_folder(folder_), ElementsAre("step-000004"));

  ASSERT_EQ(prepare_save(place_, {5}, 1000), Status());
  const std::string file =
      join_path(writing_path(place_, {5}), "actor.weights.rank-0001.safetensors");
  ASSERT_TRUE(make_folder(file).ok());  // a file cannot be made there
  for (const int64_t rank : {0, 1, 2})
    EXPECT_EQ(write_share(place_, {5}, {rank, 3}, shares[rank]).ok(), rank != 1);
  const auto failed = commit_save(place_, {5}, 3, {});
  EXPECT_THAT(failed.status().message(), HasSubstr("rank 1: " + file + ": cannot be created"));
  EXPECT_THAT(*list_folder(folder_), ElementsAre("step-000004"));
}

// A job that is started again while ranks of the one before still end: these cannot write to what
// it writes, and their shares do not count for it.
TEST_F(CheckpointTest, AJobsSharesGoToItsOwnCheckpointAlone) {
  const auto shares = shares_of(at::arange(24, at::kFloat).view({6, 4}), 2);
  const auto others = shares_of(at::full({6, 4}, -1.0), 2);
  const SavePlace before{folder_, "before"};
  ASSERT_EQ(prepare_save(before, {5}, 1000), Status());
  FileHandle writes = hold_writing(writing_path(before, {5}));
  ASSERT_TRUE(writes.is_open());

  testing::internal::CaptureStderr();
  ASSERT_EQ(prepare_save(place_, {5}, 1000), Status());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr(writing_path(before, {5}) + ": stays, a process of job 'before' still"));
  ASSERT_EQ(write_share(place_, {5}, {0, 2}, shares[0]), Status());
  ASSERT_EQ(write_share(before, {5}, {1, 2}, others[1]), Status());
  const auto missing = commit_save(place_, {5}, 2, {}, [] { return true; });
  EXPECT_THAT(missing.status().message(), HasSubstr("rank 1 has not written its share"));

  writes = FileHandle();  // the process ends
  testing::internal::CaptureStderr();
  ASSERT_EQ(prepare_save(place_, {5}, 1000), Status());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("removing " + writing_path(before, {5}) + ", left by job 'before'"));
  EXPECT_THAT(write_share(before, {5}, {1, 2}, others[1]).message(), HasSubstr("is gone"));
  for (const int64_t rank : {0, 1})
    ASSERT_EQ(write_share(place_, {5}, {rank, 2}, shares[rank]), Status());
  const auto path = commit_save(place_, {5}, 2, {});
  ASSERT_TRUE(path.ok()) << path.status().message();
  EXPECT_THAT(*list_folder(folder_), ElementsAre("step-000005"));
  EXPECT_EQ(list_folder(*path)->size(), 4U);  // two files of tensors, state.json, manifest.json
  EXPECT_TRUE(at::equal(CheckpointReader::open(*path)->whole("actor.weights")->front().second,
                        at::arange(24, at::kFloat).view({6, 4})));
}

// The bytes do not depend on which thread writes them.
TEST_F(CheckpointTest, WritesBesideAsItDoesAtOnce) {
  save(folder_, 3);
  const std::string other = folder_ + "-beside";
  fs::remove_all(other);
  {
    CheckpointWriter writer({}, {other, "this job"}, {});
    EXPECT_FALSE(writer.open());
    for (const int64_t step : {1, 2, 3}) {
      ASSERT_EQ(writer.prepare({step}, 1000), Status());
      writer.begin({step}, {}, state_of(step));
      EXPECT_TRUE(writer.open());
      EXPECT_EQ(writer.share_written(), Status());
      EXPECT_EQ(writer.committed(), Status());
    }
    ASSERT_EQ(writer.prepare({4}, 1000), Status());
    writer.begin({4}, {}, state_of(4));
  }
  EXPECT_THAT(*list_folder(other), ElementsAre("step-000003", "step-000004"));  // keep_last
  for (const std::string& name : *list_folder(join_path(other, "step-000003")))
    EXPECT_EQ(*read_file(join_path(other, "step-000003/" + name)),
              *read_file(join_path(folder_, "step-000003/" + name)))
        << name;
  fs::remove_all(other);
}

// Steps that are stuck are not hidden by a checkpoint that is written beside them.
TEST_F(CheckpointTest, WhatIsWrittenBesideIsNoProgressOfTheSteps) {
  CheckpointWriter writer({}, place_, {1, 2});
  ASSERT_EQ(prepare_save(place_, {1}, 1000), Status());
  const std::string note = join_path(writing_path(place_, {1}), ".share-1.json");
  const uint64_t before = progress_count();
  writer.begin({1}, {}, state_of(1));
  while (!path_exists(note)) std::this_thread::yield();
  EXPECT_EQ(progress_count(), before);
  EXPECT_EQ(writer.committed(), Status());
}

// What fails beside the steps is not lost.
TEST_F(CheckpointTest, AFailureBesideIsReturnedToWhoWaits) {
  CheckpointWriter writer({}, place_, {});
  ASSERT_EQ(writer.prepare({1}, 1000), Status());
  const std::string file = join_path(writing_path(place_, {1}), "actor.weights.safetensors");
  ASSERT_TRUE(make_folder(file).ok());
  writer.begin({1}, {}, state_of(1));
  EXPECT_THAT(writer.share_written().message(), HasSubstr(file));
  EXPECT_THAT(writer.committed().message(), HasSubstr(file));
  EXPECT_FALSE(writer.open());
  EXPECT_THAT(*list_folder(folder_), testing::IsEmpty());
}

// Writes checkpoints one after another, telling each finished step through a pipe, until killed.
// `beside`: by a thread, as runs do.
[[noreturn]] void write_until_killed(const std::string& folder, int64_t first, int acknowledged,
                                     bool beside) {
  const CheckpointConfig config;
  CheckpointWriter writer(config, {folder, cat("child ", ::getpid())}, {});
  const auto write_beside = [&](int64_t step) {
    if (!writer.prepare({step}, 1).ok()) return false;
    writer.begin({step}, {}, state_of(step, 4096));
    return writer.share_written().ok() && writer.committed().ok();
  };
  for (int64_t step = first;; ++step) {
    if (beside && !write_beside(step)) ::_exit(1);
    if (!beside && !save_checkpoint(folder, {step}, {}, state_of(step, 4096)).ok()) ::_exit(1);
    if (!apply_retention(folder, {step}, config).ok()) ::_exit(1);
    if (::write(acknowledged, &step, sizeof step) != sizeof step) ::_exit(1);
  }
}

int64_t last_step(int pipe) {
  int64_t step = -1, value = 0;
  while (::read(pipe, &value, sizeof value) == sizeof value) step = value;
  return step;
}

// SIGKILL at any moment loses nothing: the newest checkpoint is intact, holds what its step wrote,
// and is at least as new as the last save that returned.
TEST_F(CheckpointTest, KillWhileWritingLosesNothing) {
  const int trials = full_tier() ? 2000 : 60;
  std::mt19937 random(12345);
  int64_t newest = 0;
  int during_write = 0;
  unsigned window_us = 25000;  // longer as long as the machine is too busy for a single save
  for (int trial = 0; trial < trials; ++trial) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) write_until_killed(folder_, newest + 1, ends[1], trial % 2 == 1);
    ::close(ends[1]);
    ::usleep(500 + random() % window_us);
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer failed by itself";
    const int64_t acknowledged = last_step(ends[0]);
    ::close(ends[0]);
    window_us = acknowledged < 0 ? std::min(2 * window_us, 2000000U) : 25000U;
    if (path_exists(folder_))
      for (const std::string& name : *list_folder(folder_)) during_write += name[0] == '.';
    const auto path = resume_path("auto", folder_);
    ASSERT_TRUE(path.ok()) << path.status().message();
    if (path->empty()) {
      ASSERT_EQ(acknowledged, -1);
      ASSERT_EQ(newest, 0);
      continue;
    }
    ASSERT_TRUE(verify_checkpoint(*path).ok());
    CheckpointReader state = *CheckpointReader::open(*path);
    const auto step = state.numbers()["step"].get<int64_t>();
    ASSERT_GE(step, std::max(acknowledged, newest));
    for (const auto& [name, tensor] : *state.whole("actor.optimizer"))
      ASSERT_TRUE(at::equal(tensor, at::full({4096}, -static_cast<double>(step))));
    newest = step;
  }
  EXPECT_GT(newest, 0);
  EXPECT_GT(during_write, trials / 10) << "the kills must hit the writing itself";
}

}  // namespace
}  // namespace braid::inline checkpoint
