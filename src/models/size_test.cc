// Sizes as the config.json of Hugging Face models states them.
#include "models/size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"

namespace braid::inline models {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

Json llama_config() {
  return Json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "vocab_size": 32000})");
}

Result<ModelSize> read(const Json& config) {
  return parse_model_size(config.dump(), "m/config.json");
}

std::string failure(const char* key, const Json& value) {
  Json config = llama_config();
  config[key] = value;
  const auto model = read(config);
  EXPECT_EQ(model.status().code(), Code::kInvalidInput) << key << " " << value;
  EXPECT_THAT(model.status().message(), StartsWith("m/config.json: "));
  return model.status().message();
}

TEST(ModelSize, LlamaIsReadAsTheCatalogueHasIt) {
  ModelSize model = *read(llama_config());
  model.name = "llama2-7b";
  EXPECT_EQ(model, *find_model("llama2-7b"));
  EXPECT_EQ(assumption_note(model), "");
}

TEST(ModelSize, DimensionsThatAreNoWholeNumbersInRangeNameTheirKey) {
  EXPECT_EQ(failure("hidden_size", -4096),
            "m/config.json: 'hidden_size' must be a whole number from 1 to 268435456, is -4096");
  for (const Json& value : {Json(0), Json(4096.5), Json("4096"), Json(true), Json(UINT64_MAX)})
    EXPECT_THAT(failure("num_hidden_layers", value), HasSubstr("'num_hidden_layers' must be"));
  EXPECT_THAT(failure("num_local_experts", -8), HasSubstr("'num_local_experts' must be"));
  EXPECT_THAT(failure("num_attention_heads", 0), HasSubstr("'num_attention_heads' must be"));
}

TEST(ModelSize, DimensionsThatDoNotDivideNameBothKeys) {
  EXPECT_EQ(failure("num_key_value_heads", 5),
            "m/config.json: 'num_attention_heads' (32) must be a multiple of "
            "'num_key_value_heads' (5)");
  EXPECT_THAT(failure("hidden_size", 4097),
              HasSubstr("'hidden_size' (4097) must be a multiple of 'num_attention_heads' (32)"));
}

TEST(ModelSize, LatentAttentionAndTheWholeAreChecked) {
  Json config = llama_config();
  config.update({{"model_type", "deepseek_v3"},
                 {"qk_nope_head_dim", 128},
                 {"v_head_dim", 128},
                 {"qk_rope_head_dim", 64},
                 {"kv_lora_rank", -5}});
  EXPECT_THAT(read(config).status().message(), HasSubstr("'kv_lora_rank' must be a whole number"));
  config["kv_lora_rank"] = 512;
  EXPECT_TRUE(read(config).ok());
  EXPECT_THAT(failure("num_hidden_layers", 1 << 28), HasSubstr("parameters; at most 1e+15"));
}

TEST(ModelSize, EveryMissingDimensionIsNamed) {
  for (const char* key :
       {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"}) {
    Json config = llama_config();
    config.erase(key);
    EXPECT_EQ(read(config).status().message(), cat("m/config.json: missing key '", key, "'"));
  }
}

TEST(ModelSize, UnknownArchitecturesAreReadAsLlamaAndSaySo) {
  Json config = llama_config();
  config["model_type"] = "hyena";
  config["architectures"] = {"HyenaForCausalLM"};
  EXPECT_THAT(assumption_note(*read(config)),
              StartsWith("architecture 'HyenaForCausalLM' (model_type 'hyena') of m/config.json is "
                         "not known; priced as Llama's"));
  config.erase("architectures");
  EXPECT_THAT(assumption_note(*read(config)), StartsWith("model_type 'hyena' of m/config.json"));
  config.erase("model_type");
  EXPECT_THAT(assumption_note(*read(config)), StartsWith("m/config.json states no model_type"));
}

// Qwen-7B states twice the width of one matrix; Qwen1.5-MoE-A2.7B one shared expert of four widths.
TEST(ModelSize, QwenWidths) {
  Json config = llama_config();
  config["architectures"] = {"QWenLMHeadModel"};
  config.update({{"model_type", "qwen"}, {"intermediate_size", 22016}, {"vocab_size", 151936}});
  ModelSize model = *read(config);
  model.name = "qwen1-7b";
  EXPECT_EQ(model, *find_model("qwen1-7b"));
  config.update({{"model_type", "qwen2_moe"},
                 {"num_experts", 60},
                 {"num_experts_per_tok", 4},
                 {"moe_intermediate_size", 1408},
                 {"shared_expert_intermediate_size", 5632}});
  EXPECT_EQ(read(config)->shared_experts, 4);
}

// Counts as model cards state them, without the norms of query and key heads (13312 in gemma 3).
TEST(ModelSize, GemmaAndPhiHaveTheNumbersOfTheirCheckpoints) {
  const auto sizes = [](int64_t layers, int64_t hidden, int64_t intermediate, int64_t vocab) {
    return Json{{"num_hidden_layers", layers},
                {"hidden_size", hidden},
                {"intermediate_size", intermediate},
                {"vocab_size", vocab}};
  };
  Json config = sizes(26, 2304, 9216, 256000);  // google/gemma-2-2b
  config.update({{"model_type", "gemma2"},
                 {"num_attention_heads", 8},
                 {"num_key_value_heads", 4},
                 {"head_dim", 256},
                 {"sliding_window", 4096}});
  EXPECT_EQ(total_params(*read(config)), 2614341888);
  // Of 8192 tokens half of the layers see the last 4096.
  EXPECT_EQ(mean_decode_context(*read(config), 8192), (8192 + 4096) / 2.0);
  config = sizes(26, 1152, 6912, 262144);  // google/gemma-3-1b-pt
  config.update({{"model_type", "gemma3_text"},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 1},
                 {"head_dim", 256},
                 {"sliding_window", 512},
                 {"sliding_window_pattern", 6}});
  EXPECT_EQ(total_params(*read(config)), 999885952 - 13312);
  // Of 26 layers each sixth, 4 in all, sees all keys; the later spelling lists them.
  const ModelSize by_pattern = *read(config);
  EXPECT_NEAR(mean_decode_context(by_pattern, 6512), (4 * 6512 + 22 * 512) / 26.0, 1e-9);
  config.erase("sliding_window_pattern");
  for (int layer = 0; layer < 26; ++layer)
    config["layer_types"].push_back(layer % 6 == 5 ? "full_attention" : "sliding_attention");
  EXPECT_EQ(*read(config), by_pattern);
  config = sizes(32, 3072, 8192, 32064);  // microsoft/Phi-3-mini-4k-instruct
  config.update({{"model_type", "phi3"}, {"num_attention_heads", 32}, {"sliding_window", 2047}});
  EXPECT_EQ(total_params(*read(config)), 3821079552);
  EXPECT_EQ(mean_decode_context(*read(config), 4096), 2047);
}

}  // namespace
}  // namespace braid::inline models
