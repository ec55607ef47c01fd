// Damaged model folders as a user meets them: one line that names file and tensor, exit code 2,
// nothing written.
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "base/json.h"
#include "host/testing.h"
#include "nn/safetensors.h"
#include "nn/test_models.h"
#include "test_paths.h"

namespace braid {
namespace {

using testing::HasSubstr;
using Named = std::vector<std::pair<std::string, at::Tensor>>;

struct Damage {
  const char* name;
  std::vector<const char*> said;  // parts of the error line
  std::function<void(const std::string& folder)> apply;
};

std::string weights_path(const std::string& folder) {
  return join_path(folder, "model.safetensors");
}

void rewrite_config(const std::string& folder, const std::function<void(Json&)>& change) {
  const std::string path = join_path(folder, "config.json");
  Json config = *parse_json(*read_file(path), path);
  change(config);
  EXPECT_TRUE(write_file_atomic(path, config.dump()).ok());
}

void rewrite_weights(const std::string& folder, const std::function<void(Named&)>& change) {
  Named tensors;
  {
    const auto weights = WeightFolder::open(folder);
    ASSERT_TRUE(weights.ok());
    for (const std::string& name : weights->names())
      tensors.emplace_back(name, *weights->read(name));
  }
  change(tensors);
  ASSERT_TRUE(write_safetensors(weights_path(folder), tensors).ok());
}

void rewrite_bytes(const std::string& folder, const std::function<void(std::string&)>& change) {
  std::string bytes = *read_file(weights_path(folder));
  change(bytes);
  ASSERT_TRUE(write_file_atomic(weights_path(folder), bytes).ok());
}

// Of the golden llama, whose first tensor by name is lm_head.weight.
std::vector<Damage> damages() {
  return {
      {"unknown architecture",
       {"config.json", "unknown architecture 'MambaForCausalLM'"},
       [](const std::string& folder) {
         rewrite_config(folder, [](Json& c) { c["architectures"] = {"MambaForCausalLM"}; });
       }},
      {"config that is no JSON",
       {"config.json"},
       [](const std::string& folder) {
         EXPECT_TRUE(write_file_atomic(join_path(folder, "config.json"), "{\"a\": ").ok());
       }},
      {"missing tensor",
       {"tensor lm_head.weight is missing"},
       [](const std::string& folder) {
         rewrite_weights(folder, [](Named& tensors) { tensors.erase(tensors.begin()); });
       }},
      {"extra tensor",
       {"model.safetensors: tensor model.layers.9.extra", "does not belong to LlamaForCausalLM"},
       [](const std::string& folder) {
         rewrite_weights(folder, [](Named& tensors) {
           tensors.emplace_back("model.layers.9.extra", at::ones({2}));
         });
       }},
      {"wrong shape",
       {"model.safetensors: tensor lm_head.weight has shape [3, 4]"},
       [](const std::string& folder) {
         rewrite_weights(folder, [](Named& tensors) { tensors[0].second = at::ones({3, 4}); });
       }},
      {"truncated file",
       {"model.safetensors: tensor ", "truncated"},
       [](const std::string& folder) {
         rewrite_bytes(folder, [](std::string& bytes) { bytes.resize(bytes.size() - 40); });
       }},
      {"file of three bytes",
       {"model.safetensors: truncated: 3 bytes"},
       [](const std::string& folder) {
         rewrite_bytes(folder, [](std::string& bytes) { bytes.resize(3); });
       }},
      {"corrupt header",
       {"model.safetensors: corrupt header"},
       [](const std::string& folder) {
         rewrite_bytes(folder, [](std::string& bytes) { bytes[8] = '!'; });
       }},
      {"header of impossible length",
       {"model.safetensors: corrupt header: its length"},
       [](const std::string& folder) {
         rewrite_bytes(folder, [](std::string& bytes) { bytes[6] = '\x7f'; });
       }},
      {"NaN weight",
       {"model.safetensors: tensor lm_head.weight holds NaN"},
       [](const std::string& folder) {
         rewrite_weights(folder, [](Named& tensors) {
           tensors[0].second.view({-1})[5] = std::numeric_limits<float>::quiet_NaN();
         });
       }},
      {"weights of another format",
       {"neither model.safetensors nor model.safetensors.index.json"},
       [](const std::string& folder) { std::filesystem::remove(weights_path(folder)); }},
  };
}

class BadModelCommand : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    if (!path_exists(BRAID_BINARY)) GTEST_SKIP() << "the program is not built: " << BRAID_BINARY;
  }
  // Exit code 2 and one line with all the parts.
  void expect_refused(const std::vector<std::string>& argv, const Damage& damage) {
    const Finished out = run_program(argv);
    EXPECT_EQ(out.end, "exited with status 2") << damage.name << ": " << out.errors;
    for (const char* part : damage.said) EXPECT_THAT(out.errors, HasSubstr(part)) << damage.name;
    EXPECT_EQ(std::count(out.errors.begin(), out.errors.end(), '\n'), 1) << out.errors;
  }
};

TEST_F(BadModelCommand, ScoreNamesFileAndTensor) {
  const std::string input = join_path(folder_, "in.jsonl");
  ASSERT_TRUE(write_file_atomic(input, "{\"ids\": [1, 2]}\n").ok());
  for (const Damage& damage : damages()) {
    const std::string model = copy_golden("llama");
    damage.apply(model);
    expect_refused({BRAID_BINARY, "score", model, "--input", input, "--json"}, damage);
    std::filesystem::remove_all(model);
  }
}

TEST_F(BadModelCommand, TrainingWritesNothing) {
  const std::string runs = join_path(folder_, "runs");
  const std::vector<Damage> all = damages();
  for (size_t i = 0; i < all.size(); i += 3) {  // a sample: the loader is the same as above
    const Damage& damage = all[i];
    const std::string model = copy_golden("llama");
    damage.apply(model);
    const Finished out =
        run_program({BRAID_BINARY, "train", cat(BRAID_SOURCE_DIR, "/examples/quickstart/grpo.yaml"),
                     "model.path=" + model,
                     cat("tokenizer.path=", BRAID_SOURCE_DIR, "/examples/quickstart/model"),
                     "run.dir=" + runs, "train.total_steps=1"});
    EXPECT_EQ(out.end, "exited with status 2") << damage.name << ": " << out.errors;
    for (const char* part : damage.said) EXPECT_THAT(out.errors, HasSubstr(part)) << damage.name;
    EXPECT_FALSE(path_exists(runs)) << damage.name;
    std::filesystem::remove_all(model);
  }
}

}  // namespace
}  // namespace braid
