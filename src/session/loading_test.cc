// What ranks read of files of weights, how they notice that the files differ, and that they compare
// what comes when weights move for the first time.
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>

#include <filesystem>

#include "base/json.h"
#include "comm/rank_testing.h"
#include "models/spec.h"
#include "nn/safetensors.h"
#include "session/testing.h"
#include "weights/held_slices.h"
#include "weights/rank_models.h"

namespace braid::inline session {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string folder_of(const std::string& name) {
  return join_path(testing::TempDir(), cat("loading-", ::getppid(), "-", name));
}

std::string file_in(const std::string& folder) { return join_path(folder, "model.safetensors"); }

// The quickstart's model with wider layers: 9 MB.
void write_model(const std::string& folder) {
  Json config = *parse_json(*read_file(quickstart_model() + "/config.json"), "config.json");
  config["hidden_size"] = 256;
  config["intermediate_size"] = 512;
  const std::string source = folder_of("source"), path = join_path(source, "config.json");
  ASSERT_TRUE(make_folder(source).ok());
  ASSERT_TRUE(write_file_atomic(path, config.dump()).ok());
  const auto model = make_model(*parse_model_spec(config.dump(), path), {});
  ASSERT_EQ(model.status().message(), "");
  const Status saved = save_model(**model, folder, {.source_folder = source, .dtype = at::kFloat});
  ASSERT_EQ(saved.message(), "");
}

// A folder that all ranks find, and one in which a bit of one tensor is another one.
struct Folders {
  explicit Folders(World& world) {
    if (world.global_rank() == 0 && !path_exists(file_in(good))) {
      write_model(good);
      std::filesystem::copy(good, bad);
      const auto file = SafetensorsFile::open(file_in(good));
      const TensorEntry& entry = file->entries().at(kDamaged);
      std::string bytes = *read_file(file_in(good));
      bytes[file->header().size() + static_cast<size_t>(entry.end_byte) - 4] ^= 1;
      EXPECT_TRUE(write_file_atomic(file_in(bad), bytes).ok());
    }
    EXPECT_TRUE((*world.everyone())->barrier("the model is there").ok());
  }
  // The last number of its last row: of the last ranks of a group.
  static constexpr const char* kDamaged = "model.layers.3.self_attn.o_proj.weight";
  const std::string good = folder_of("good"), bad = folder_of("bad");
};

Config run_of(const std::string& folder) {
  Config config = tiny_run("grpo");
  config.algorithm.kl.coef = 0.01;  // there is a reference
  config.model.config.clear();
  config.model.path = folder;
  return config;
}

std::string plan_of(const std::string& generate, const std::string& reference,
                    const std::string& actor) {
  return cat("graph: grpo\ndevices: 1x4\ncalls:\n  generate: {", generate, "}\n  old_logprob: {",
             actor, "}\n  ref_logprob: {", reference, "}\n  update_actor: {", actor, "}\n");
}

int64_t bytes_of(const std::vector<SavedSlice>& slices) {
  int64_t bytes = 0;
  for (const SavedSlice& slice : slices) bytes += static_cast<int64_t>(slice.values.nbytes());
  return bytes;
}

void expect_as_in_file(const std::vector<SavedSlice>& slices, const std::string& folder) {
  const auto file = SafetensorsFile::open(file_in(folder));
  for (const SavedSlice& slice : slices) {
    at::Tensor whole = *file->read(slice.tensor);
    for (size_t dim = 0; dim < slice.offset.size(); ++dim)
      whole = whole.narrow(static_cast<int64_t>(dim), slice.offset[dim],
                           slice.values.size(static_cast<int64_t>(dim)));
    EXPECT_TRUE(at::equal(whole, slice.values)) << slice.tensor;
  }
}

// Loads the models of a plan on all ranks; `read` becomes what this one reads of tensors.
Result<std::unique_ptr<RankModels>> load(World& world, const std::string& folder,
                                         const std::string& plan, int64_t* read = nullptr,
                                         const std::string& how = "files") {
  Config config = run_of(folder);
  config.runtime.load = how;
  config.train.offload = "off";  // models stay where they can be looked at
  const Program program = program_under(config, plan);
  const int64_t before = safetensors_bytes_read();
  auto out = RankModels::load(config, program, &world);
  if (read != nullptr) *read = safetensors_bytes_read() - before;
  return out;
}

struct FileSize {
  explicit FileSize(const std::string& folder) {
    const auto file = SafetensorsFile::open(file_in(folder));
    all = file->size_bytes(), header = static_cast<int64_t>(file->header().size());
  }
  int64_t all = 0, header = 0;
};

RANK_TEST(Loading, ARankReadsItsSlices, 4) {
  const Folders folders(world);
  const FileSize size(folders.good);
  int64_t read = 0;
  const auto models = load(world, folders.good,
                           plan_of("mesh: all, dp: 2, tp: 2", "mesh: all, tp: 2, pp: 2",
                                   "mesh: all, tp: 2, pp: 2, micro_batches: 2"),
                           &read);
  ASSERT_EQ(models.status().message(), "");
  // The reference shares the actor's weights, and generation's are sent.
  const auto slices = held_slices((*models)->roles().at("actor")).weights;
  EXPECT_EQ(read, size.header + bytes_of(slices));
  EXPECT_LT(read, size.all * 3 / 10);
  expect_as_in_file(slices, folders.good);
}

// runtime.load: peers. Of two replicas the first one reads the tensors, the other only where they
// are.
RANK_TEST(Loading, OneOfEqualRanksReadsForAll, 4) {
  const Folders folders(world);
  const FileSize size(folders.good);
  int64_t read = 0;
  // The reference has a layout of its own and reads for itself.
  const auto models =
      load(world, folders.good,
           plan_of("mesh: all, dp: 2, tp: 2", "mesh: all, dp: 4", "mesh: all, dp: 2, tp: 2"), &read,
           "peers");
  ASSERT_EQ(models.status().message(), "");
  const auto actor = held_slices((*models)->roles().at("actor")).weights;
  const auto reference = held_slices((*models)->roles().at("reference")).weights;
  expect_as_in_file(actor, folders.good);
  expect_as_in_file(reference, folders.good);
  const int64_t headers = 2 * size.header;
  const int64_t wanted[] = {headers + bytes_of(actor) + bytes_of(reference),
                            headers + bytes_of(actor), headers, headers};
  EXPECT_EQ(read, wanted[world.global_rank()]);
}

// What the rank that reads finds wrong ends the others too, which say whom to ask.
RANK_TEST(Loading, AllEndWhereTheRankThatReadsFails, 4) {
  const Folders folders(world);
  const std::string bad = folder_of("not-finite");
  if (world.global_rank() == 0) {
    std::filesystem::copy(folders.good, bad);
    const auto file = SafetensorsFile::open(file_in(bad));
    const TensorEntry& entry = file->entries().at(Folders::kDamaged);
    std::string bytes = *read_file(file_in(bad));
    for (int64_t i = -4; i < 0; ++i)  // a NaN
      bytes[file->header().size() + static_cast<size_t>(entry.end_byte + i)] = '\xff';
    EXPECT_TRUE(write_file_atomic(file_in(bad), bytes).ok());
  }
  EXPECT_TRUE((*world.everyone())->barrier("the model is there").ok());
  const std::string everywhere = "mesh: all, dp: 4";
  const auto models =
      load(world, bad, plan_of(everywhere, everywhere, everywhere), nullptr, "peers");
  EXPECT_THAT(models.status().message(), HasSubstr(Folders::kDamaged));
  EXPECT_THAT(models.status().message(),
              HasSubstr(world.global_rank() == 0 ? "NaN or infinite" : "rank 0, which reads"));
}

// A file for each of two roles, and rows that lie in two slices are read by both.
RANK_TEST(Loading, ARankReadsItsShareOfSlicedWeights, 4) {
  const Folders folders(world);
  const FileSize size(folders.good);
  int64_t read = 0;
  const auto models = load(
      world, folders.good,
      plan_of("mesh: all, dp: 4", "mesh: all, dp: 4, zero: 3", "mesh: all, dp: 4, zero: 3"), &read);
  ASSERT_EQ(models.status().message(), "");
  int64_t kept = 0;
  for (const auto& [name, role] : (*models)->roles())
    for (const auto& [unit, slice] : role.shards->slices())
      kept += static_cast<int64_t>(slice.nbytes());
  EXPECT_GE(read, size.all / 4);
  EXPECT_LE(read, 2 * size.header + kept * 11 / 10);
  EXPECT_LT(kept, size.all * 6 / 10);
  expect_as_in_file(held_slices((*models)->roles().at("actor")).weights, folders.good);
}

// One bit of what two replicas have.
RANK_TEST(Loading, ReplicasNoticeOtherFiles, 4) {
  const Folders folders(world);
  const std::string& folder = world.global_rank() == 3 ? folders.bad : folders.good;
  const std::string layout = "mesh: all, dp: 2, tp: 2";
  const std::string said = load(world, folder, plan_of(layout, layout, layout)).status().message();
  EXPECT_THAT(said, AllOf(HasSubstr(cat("rank 3 reads model.path: model.safetensors, tensor ",
                                        Folders::kDamaged, "[")),
                          HasSubstr("with SHA-256 "), HasSubstr(", rank 1 with SHA-256 "),
                          HasSubstr("all ranks must read the same files")));
}

// Two roles from one folder, in layouts of which no rank has a slice as another one has it.
RANK_TEST(Loading, RanksWhoseSlicesOverlapNoticeOtherFiles, 4) {
  const Folders folders(world);
  const std::string& folder = world.global_rank() == 3 ? folders.bad : folders.good;
  const auto said = [&](const std::string& own) {
    return load(world, own,
                plan_of("mesh: \"0,1\", tp: 2", "mesh: \"2,3\", pp: 2",
                        "mesh: \"0,1\", tp: 2, micro_batches: 2"))
        .status()
        .message();
  };
  EXPECT_THAT(said(folder), HasSubstr(cat("rank 3 reads model.path: model.safetensors, tensor ",
                                          Folders::kDamaged)));
  EXPECT_EQ(said(folders.good), "");
}

// With adapters the reference shares the actor's base where both are, and has its own elsewhere.
RANK_TEST(Loading, RanksThatShareABaseCompareIt, 4) {
  const Folders folders(world);
  const auto said = [&](const std::string& folder) {
    Config config = run_of(folder);
    config.lora.rank = 4;
    const std::string plan =
        plan_of("mesh: \"0,1\", dp: 2", "mesh: all, dp: 4", "mesh: \"0,1\", dp: 2");
    return RankModels::load(config, program_under(config, plan), &world).status().message();
  };
  EXPECT_EQ(said(folders.good), "");
  EXPECT_THAT(
      said(world.global_rank() == 3 ? folders.bad : folders.good),
      HasSubstr(cat("rank 3 reads model.path: model.safetensors, tensor ", Folders::kDamaged)));
}

// Gives the layers of two parts that a rank receives to each other: what comes lands where it does
// not belong, without another difference.
bool exchange_layers(std::vector<Message>& messages, DeviceId rank) {
  std::vector<std::pair<Message*, MessagePart*>> parts;
  for (Message& message : messages)
    for (MessagePart& part : message.parts)
      if (message.to == rank) parts.emplace_back(&message, &part);
  for (const auto& [message, part] : parts)
    for (const auto& [other_message, other] : parts) {
      const bool alike = part->item == other->item && part->units == other->units &&
                         part->layers.size() == other->layers.size();
      if (!alike || part->layers == other->layers || message->from != other_message->from) continue;
      std::swap(part->layers, other->layers);
      return true;
    }
  return false;
}

// From two pipeline stages to whole copies, and on rank 1 not as the others say.
RANK_TEST(Loading, TheFirstMoveOfWeightsIsCompared, 2) {
  Config config = tiny_run("grpo");
  const std::string plan =
      cat("graph: grpo\ndevices: 1x2\ncalls:\n  generate: {mesh: all, dp: 2}\n",
          "  old_logprob: {mesh: all, dp: 2}\n  ref_logprob: {mesh: all, dp: 2}\n",
          "  update_actor: {mesh: all, pp: 2, micro_batches: 2}\n");
  for (const bool wrong : {false, true}) {
    Program program = program_under(config, plan);
    const bool here = wrong && world.global_rank() == 1;
    if (here) {
      EXPECT_TRUE(exchange_layers(program.reallocations[0].messages, DeviceId{1}));
    }
    const auto models = RankModels::load(config, program, &world);
    ASSERT_EQ(models.status().message(), "");
    const auto move = [&]() -> std::string {
      Status status = (*models)->reallocate(0);
      if (status.ok()) status = (*models)->end_moves();
      return status.message();
    };
    const std::string said = move();
    if (here) {
      EXPECT_THAT(said, AllOf(HasSubstr("weights of actor: tensor model.layers."),
                              HasSubstr("rank 1 has them with SHA-256 "),
                              HasSubstr(", rank 0 sent them with SHA-256 ")));
    } else {
      EXPECT_EQ(said, "");
    }
    ASSERT_TRUE((*world.everyone())->barrier("both have moved").ok());
  }
}

// Hashes come with the first move alone.
RANK_TEST(Loading, LaterMovesSendWeightsAlone, 2) {
  const Config config = tiny_run("grpo");
  const std::string one = "{mesh: \"0\", dp: 1}\n";
  const std::string plan =
      cat("graph: grpo\ndevices: 1x2\ncalls:\n  generate: {mesh: \"1\", dp: 1}\n",
          "  old_logprob: ", one, "  ref_logprob: ", one, "  update_actor: ", one);
  const Program program = program_under(config, plan);
  const auto models = RankModels::load(config, program, &world);
  ASSERT_EQ(models.status().message(), "");
  int64_t calls[2] = {};
  for (int64_t& each : calls) {
    Communicator& all = **world.everyone();
    all.reset_traffic();
    ASSERT_EQ((*models)->reallocate(0).message(), "");
    ASSERT_EQ((*models)->end_moves().message(), "");
    each = all.traffic(Transfer::kSend).calls + all.traffic(Transfer::kReceive).calls;
  }
  EXPECT_EQ(calls[0], 2 * calls[1]);
  EXPECT_GT(calls[1], 0);
}

}  // namespace
}  // namespace braid::inline session
