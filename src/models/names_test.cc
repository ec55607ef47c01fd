#include "models/names.h"

#include <gtest/gtest.h>

namespace braid::inline models {
namespace {

TEST(ModelNames, NamesOfRepositoriesMeanCatalogueModels) {
  const std::pair<const char*, const char*> names[] = {
      {"meta-llama/Llama-2-7b-chat-hf", "llama2-7b"},    {"Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"},
      {"meta-llama/Llama-3.1-8B-Instruct", "llama3-8b"}, {"llama-34b", "codellama-34b"},
      {"Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b"},           {"llama-7b", "llama-7b"}};
  for (const auto& [name, model] : names) {
    const auto found = find_model_by_any_name(name);
    ASSERT_TRUE(found.ok()) << name;
    EXPECT_EQ(found->name, model);
  }
  EXPECT_EQ(find_model_by_any_name("llama2-8b").status().code(), Code::kNotFound);
}

TEST(ModelNames, HuggingFaceNamesAreCatalogueEntries) {
  const std::pair<const char*, const char*> names[] = {
      {"Qwen/Qwen2-7B-Instruct", "qwen2.5-7b"},
      {"Qwen/Qwen2.5-Math-7B", "qwen2.5-7b"},
      {"Qwen/Qwen2.5-Coder-32B-Instruct", "qwen2.5-32b"},
      {"meta-llama/Llama-2-7b-hf", "llama2-7b"},
      {"meta-llama/Meta-Llama-3-8B-Instruct", "llama3-8b"},
      {"OpenRLHF/Llama-3-8b-sft-mixture", "llama3-8b"},
      {"OpenRLHF/Llama-3-8b-rm-700k", "llama3-8b"},
      {"deepseek-ai/deepseek-llm-7b-chat", "deepseek-llm-7b"},
      {"deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "llama3-8b"},
      {"google/gemma-2-9b-it", "gemma2-9b"},
      {"mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b"},
      {"/models/Qwen2.5-VL-7B-Instruct", "qwen2.5-7b"},
      {"Qwen/Qwen3-VL-30B-A3B-Instruct", "qwen3-30b-a3b"},
      {"Qwen/Qwen3-VL-2B-Instruct", "qwen3-1.7b"},
      {"$HOME/models/Qwen3-30B-A3B-Base", "qwen3-30b-a3b"},
      {"Skywork/Skywork-Reward-Llama-3.1-8B", "llama3-8b"},
      {"zai-org/GLM-4.1V-9B-Thinking", "glm4-9b"},
      {"lmsys/gpt-oss-20b-bf16", "gpt-oss-20b"},
      {"mistralai/Mistral-Nemo-Instruct-2407", "mistral-nemo-12b"},
      {"/data/multiturn-sft-qwen-2.5-32b-instruct/global_step_372", "qwen2.5-32b"},
      {"runs/Qwen3-8B/checkpoint-10/actor/", "qwen3-8b"}};
  for (const auto& [name, entry] : names) {
    const auto found = find_model_by_any_name(name);
    ASSERT_TRUE(found.ok()) << name;
    EXPECT_EQ(found->name, entry) << name;
  }
  for (const char* name : {"nobody/knows-9b", "vl-7b", "7b", ""})
    EXPECT_FALSE(find_model_by_any_name(name).ok()) << name;
}

}  // namespace
}  // namespace braid::inline models
