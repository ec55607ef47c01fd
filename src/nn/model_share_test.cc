// Roles that share weights, and frozen models in a file.
#include "nn/model_share.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "nn/test_models.h"

namespace braid::inline nn {
namespace {

using testing::HasSubstr;

at::Tensor hidden(Model& model) {
  const at::NoGradGuard no_grad;
  return model.forward(pack_sequences({{3, 14, 15, 92}, {6, 5}}, at::kCPU), nullptr);
}

std::unique_ptr<Model> load_golden(const std::string& name, const LoadOptions& options = {}) {
  auto model = load_model(golden_folder(name), options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return std::move(model).value();
}

LoadOptions with_lora_role(bool scalar_head = false) {
  LoadOptions options;
  options.model.lora = {.rank = 2, .alpha = 4, .targets = {"q_proj", "up_proj"}};
  options.model.seed = 7;
  options.scalar_head = scalar_head;
  return options;
}

void disturb_adapters(Model& model) {
  const at::NoGradGuard no_grad;
  for (const auto& item : model.trainable_parameters())
    at::Tensor(item.second).normal_(0, 0.1, std::nullopt);
}

std::map<std::string, const void*> addresses(const Model& model) {
  std::map<std::string, const void*> result;
  for (const auto& [name, tensor] : model.parameters()) result[name] = tensor.const_data_ptr();
  return result;
}

TEST(BaseView, IsTheModelWithoutAdaptersAndLeavesThemOn) {
  const auto actor = load_golden("llama", with_lora_role());
  disturb_adapters(*actor);
  const auto view = base_view(*actor);
  const at::Tensor adapted = hidden(*actor);
  EXPECT_TRUE(hidden(*view).equal(hidden(*load_golden("llama"))));
  EXPECT_TRUE(hidden(*actor).equal(adapted));
  EXPECT_FALSE(hidden(*view).equal(adapted));
  EXPECT_EQ(view->parameters().size(), load_golden("llama")->parameters().size());
  EXPECT_EQ(view->parameters()[0].second.const_data_ptr(),
            actor->parameters()[0].second.const_data_ptr());
}

// The critic of a LoRA actor: one base in memory, adapters and head of its own.
TEST(MakeRole, EqualsLoadingAndSharesTheBase) {
  for (const char* name : {"llama", "qwen2", "llama-score"}) {
    const auto base = load_golden(name, with_lora_role(std::string(name) == "llama-score"));
    disturb_adapters(*base);
    const auto role = make_role(*base, with_lora_role(true));
    ASSERT_TRUE(role.ok()) << role.status().message();
    // A scalar head of the base is trained with its adapters: the role starts from its present
    // state.
    if (!base->spec().scalar_head) {
      EXPECT_TRUE(hidden(**role).equal(hidden(*load_golden(name, with_lora_role(true)))));
    }
    EXPECT_EQ((*role)->trainable_parameters().size(),
              load_golden(name, with_lora_role(true))->trainable_parameters().size());
    const auto mine = addresses(**role), theirs = addresses(*base);
    for (const auto& [parameter, address] : mine) {
      const bool own = parameter == "score.weight" || parameter.find(".lora_") != std::string::npos;
      EXPECT_EQ(own, theirs.count(parameter) == 0 || theirs.at(parameter) != address) << parameter;
    }
    const at::Tensor before = hidden(*base);
    disturb_adapters(**role);
    EXPECT_TRUE(hidden(*base).equal(before));
  }
}

TEST(MakeRole, LanguageModelOverScalarHeadIsAnError) {
  EXPECT_THAT(make_role(*load_golden("llama-score"), with_lora_role()).status().message(),
              HasSubstr("scalar head"));
}

class OffloadTest : public FolderTest {};

TEST_F(OffloadTest, KeepsTheValuesThroughRestsAndChangesOfTheSource) {
  for (const char* name : {"llama", "gpt2", "gemma", "qwen3", "llama-score"}) {
    const auto source = load_golden(name);
    const at::Tensor expected = hidden(*source), head = source->head_weight().clone();
    const auto frozen = offload_model(*source, folder_);
    ASSERT_TRUE(frozen.ok()) << frozen.status().message();
    {
      const at::NoGradGuard no_grad;
      for (const auto& item : source->parameters()) at::Tensor(item.second).zero_();
    }
    source->weights_changed();
    for (int use = 0; use < 2; ++use) {
      EXPECT_TRUE(hidden(**frozen).equal(expected)) << name;
      EXPECT_TRUE((*frozen)->head_weight().equal(head)) << name;
      (*frozen)->rest();
    }
    EXPECT_TRUE((*frozen)->trainable_parameters().empty());
    EXPECT_TRUE(list_folder(folder_)->empty());
  }
}

TEST_F(OffloadTest, FolderThatCannotBeWrittenIsNamed) {
  const std::string absent = join_path(folder_, "absent");
  EXPECT_THAT(offload_model(*load_golden("llama"), absent).status().message(), HasSubstr(absent));
}

}  // namespace
}  // namespace braid::inline nn
