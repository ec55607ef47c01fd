#include "models/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/family.h"

namespace braid::inline models {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Json llama_spec_config() {
  return Json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 200,
      "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "bos_token_id": 1,
      "eos_token_id": [2, 3]})");
}

ModelSpec parse(const Json& config) {
  auto spec = parse_model_spec(config.dump(), "config.json");
  EXPECT_TRUE(spec.ok()) << spec.status().message();
  return spec.ok() ? *spec : ModelSpec{};
}

std::string failure(const Json& config) {
  const auto spec = parse_model_spec(config.dump(), "x/config.json");
  EXPECT_EQ(spec.status().code(), Code::kInvalidInput);
  EXPECT_THAT(spec.status().message(), HasSubstr("x/config.json: "));
  return spec.status().message();
}

TEST(ModelSpec, ReadsLlama) {
  const ModelSpec spec = parse(llama_spec_config());
  EXPECT_EQ(spec.family, "llama");
  EXPECT_EQ(spec.architecture, "LlamaForCausalLM");
  EXPECT_EQ(spec.layers, 2);
  EXPECT_EQ(spec.kv_heads, 2);
  EXPECT_EQ(spec.head_dim, 16);
  EXPECT_EQ(spec.norm_eps, 1e-5);
  EXPECT_EQ(spec.bos_ids, std::vector<int64_t>{1});
  EXPECT_EQ(spec.eos_ids, (std::vector<int64_t>{2, 3}));
  EXPECT_FALSE(spec.pad_id.has_value());
  EXPECT_FALSE(spec.tied_embeddings);
  EXPECT_FALSE(spec.scalar_head);
  EXPECT_EQ(spec.rope.theta, 10000);
}

TEST(ModelSpec, SpellingsOf4And5MeanTheSame) {
  Json old_config = llama_spec_config(), new_config = llama_spec_config();
  const Json scaling = {{"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 64}};
  old_config["rope_theta"] = 500000.0;
  old_config["rope_scaling"] = scaling;
  old_config["torch_dtype"] = "bfloat16";
  new_config["rope_parameters"] = scaling;
  new_config["rope_parameters"]["rope_theta"] = 500000.0;
  new_config["dtype"] = "bfloat16";
  const ModelSpec spec = parse(new_config);
  EXPECT_EQ(parse(old_config), spec);
  EXPECT_EQ(spec.rope.kind, RopeSpec::Kind::kLlama3);
  EXPECT_EQ(spec.rope.theta, 500000);
  EXPECT_EQ(spec.rope.original_max_positions, 64);
  EXPECT_EQ(spec.dtype, "bfloat16");
}

TEST(ModelSpec, OldLinearScalingUsesTheKeyType) {
  Json config = llama_spec_config();
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  EXPECT_EQ(parse(config).rope.kind, RopeSpec::Kind::kLinear);
  EXPECT_EQ(parse(config).rope.factor, 2);
  config["rope_scaling"] = nullptr;
  EXPECT_EQ(parse(config).rope.kind, RopeSpec::Kind::kDefault);
}

TEST(ModelSpec, ReadsQwen) {
  Json config = llama_spec_config();
  config["architectures"] = {"Qwen2ForCausalLM"};
  config["use_sliding_window"] = false;
  config["sliding_window"] = 128;
  EXPECT_TRUE(parse(config).qkv_bias);
  EXPECT_FALSE(parse(config).output_bias);
  EXPECT_EQ(parse(config).sliding_window, 0);
  config["layer_types"] = {"sliding_attention", "sliding_attention"};
  EXPECT_EQ(parse(config).sliding_window, 128);
  config["layer_types"] = {"full_attention", "sliding_attention"};
  EXPECT_EQ(parse(config).windowed, (std::vector<bool>{false, true}));
  config["layer_types"] = {"full_attention", "linear_attention"};
  EXPECT_THAT(failure(config), HasSubstr("\"linear_attention\" is not supported"));
  config["layer_types"] = {"full_attention"};
  EXPECT_THAT(failure(config), HasSubstr("a list of 2 kinds"));
  config.erase("layer_types");
  config["architectures"] = {"Qwen3ForCausalLM"};
  EXPECT_TRUE(parse(config).qk_norm);
  EXPECT_EQ(parse(config).head_dim, 128);
  EXPECT_FALSE(parse(config).qkv_bias);
}

TEST(ModelSpec, OldQwenWindowStartsAtALayer) {
  Json config = llama_spec_config();
  config["architectures"] = {"Qwen2ForCausalLM"};
  config["use_sliding_window"] = true;
  config["sliding_window"] = 128;
  config["max_window_layers"] = 2;
  EXPECT_EQ(parse(config).sliding_window, 0);
  config["max_window_layers"] = 0;
  EXPECT_EQ(parse(config).sliding_window, 128);
  EXPECT_FALSE(has_mixed_layers(parse(config)));
  config["max_window_layers"] = 1;
  const ModelSpec spec = parse(config);
  EXPECT_TRUE(has_mixed_layers(spec));
  EXPECT_FALSE(is_windowed(spec, 0));
  EXPECT_TRUE(is_windowed(spec, 1));
}

TEST(ModelSpec, ReadsMistralWindow) {
  Json config = llama_spec_config();
  config["architectures"] = {"MistralForCausalLM"};
  EXPECT_EQ(parse(config).sliding_window, 4096);
  config["sliding_window"] = 32;
  EXPECT_EQ(parse(config).sliding_window, 32);
  config["sliding_window"] = nullptr;
  EXPECT_EQ(parse(config).sliding_window, 0);
}

TEST(ModelSpec, ReadsGemma) {
  Json config = llama_spec_config();
  config["architectures"] = {"GemmaForCausalLM"};
  config["hidden_act"] = "gelu";
  const ModelSpec spec = parse(config);
  EXPECT_EQ(spec.activation, Activation::kGeluTanh);
  EXPECT_TRUE(spec.norm_unit_offset);
  EXPECT_TRUE(spec.scale_embedding);
  EXPECT_TRUE(spec.tied_embeddings);
  EXPECT_EQ(spec.head_dim, 256);
}

TEST(ModelSpec, ReadsGemma2) {
  Json config = llama_spec_config();
  config["architectures"] = {"Gemma2ForCausalLM"};
  config["num_hidden_layers"] = 4;
  ModelSpec spec = parse(config);
  EXPECT_EQ(spec.score_width, 256);
  EXPECT_EQ(spec.attention_soft_cap, 50);
  EXPECT_EQ(spec.logit_soft_cap, 30);
  EXPECT_EQ(spec.sliding_window, 4096);
  EXPECT_EQ(spec.windowed, (std::vector<bool>{true, false, true, false}));
  EXPECT_TRUE(spec.norm_unit_offset && spec.scale_embedding && spec.tied_embeddings);
  EXPECT_EQ(spec.activation, Activation::kGeluTanh);
  config["query_pre_attn_scalar"] = 144;
  config["attn_logit_softcapping"] = nullptr;
  config["final_logit_softcapping"] = 20.0;
  spec = parse(config);
  EXPECT_EQ(spec.score_width, 144);
  EXPECT_EQ(spec.attention_soft_cap, 0);
  EXPECT_EQ(spec.logit_soft_cap, 20);
  config["final_logit_softcapping"] = -1;
  EXPECT_THAT(failure(config), HasSubstr("'final_logit_softcapping' must be positive or null"));
}

TEST(ModelSpec, SpellingsOfGemma3MeanTheSame) {
  Json old_config = llama_spec_config();
  old_config["architectures"] = {"Gemma3ForCausalLM"};
  old_config["num_hidden_layers"] = 7;
  Json new_config = old_config;
  old_config["rope_theta"] = 1000000.0;
  old_config["rope_local_base_freq"] = 10000.0;
  old_config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  old_config["sliding_window_pattern"] = 6;
  new_config["rope_parameters"] = {
      {"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1000000.0}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 10000.0}}}};
  for (int layer = 0; layer < 7; ++layer)
    new_config["layer_types"].push_back(layer == 5 ? "full_attention" : "sliding_attention");
  const ModelSpec spec = parse(new_config);
  EXPECT_EQ(parse(old_config), spec);
  EXPECT_EQ(spec.rope.kind, RopeSpec::Kind::kLinear);
  EXPECT_EQ(spec.rope.theta, 1000000);
  ASSERT_TRUE(spec.window_rope.has_value());
  EXPECT_EQ(spec.window_rope->kind, RopeSpec::Kind::kDefault);
  EXPECT_EQ(spec.window_rope->theta, 10000);
  EXPECT_TRUE(spec.qk_norm);
  EXPECT_EQ(spec.logit_soft_cap, 0);
  EXPECT_FALSE(is_windowed(spec, 5));
  EXPECT_TRUE(is_windowed(spec, 6));
  new_config["rope_parameters"]["full_attention"] = 3;
  EXPECT_THAT(failure(new_config),
              HasSubstr("'rope_parameters: full_attention' must be an object"));
  new_config["rope_parameters"].erase("full_attention");
  EXPECT_THAT(failure(new_config),
              HasSubstr("rope_parameters: settings by kind of layer need both"));
  new_config.erase("rope_parameters");
  new_config["sliding_window"] = nullptr;
  EXPECT_THAT(failure(new_config), HasSubstr("'sliding_window' says not how wide"));
}

TEST(ModelSpec, ReadsPhi3) {
  Json config = llama_spec_config();
  config["architectures"] = {"Phi3ForCausalLM"};
  EXPECT_EQ(parse(config).sliding_window, 0);
  config["sliding_window"] = 2047;
  ModelSpec spec = parse(config);
  EXPECT_EQ(spec.sliding_window, 2047);
  EXPECT_FALSE(has_last_position(spec));
  EXPECT_TRUE(joins_gate(spec));
  const auto tensors = model_tensors(spec, 0, 1);
  EXPECT_EQ(tensors[2].name, "model.layers.0.self_attn.qkv_proj.weight");
  EXPECT_EQ(tensors[2].shape, (std::vector<int64_t>{128, 64}));
  EXPECT_EQ(tensors[5].name, "model.layers.0.mlp.gate_up_proj.weight");
  EXPECT_EQ(tensors[5].shape, (std::vector<int64_t>{256, 64}));
  config["partial_rotary_factor"] = 0.75;
  EXPECT_THAT(failure(config), HasSubstr("'partial_rotary_factor'"));
}

// The original positions stand beside the scaling's object; the first releases call it "su".
TEST(ModelSpec, LongRopeEndsAtTheOriginalPositions) {
  Json config = llama_spec_config();
  config["architectures"] = {"Phi3ForCausalLM"};
  config["original_max_position_embeddings"] = 64;
  config["rope_scaling"] = {{"type", "su"},
                            {"short_factor", {1, 1, 1, 1, 1.5, 2, 2, 3}},
                            {"long_factor", {1, 2, 3, 4, 5, 6, 7, 8}}};
  const ModelSpec spec = parse(config);
  EXPECT_EQ(spec.rope.kind, RopeSpec::Kind::kLong);
  EXPECT_EQ(spec.rope.divisors.size(), 8);
  EXPECT_NEAR(spec.rope.amplitude, std::sqrt(1 + std::log(8.0) / std::log(64.0)), 1e-12);
  EXPECT_EQ(spec.max_positions, 64);
  EXPECT_TRUE(has_last_position(spec));
  config["rope_scaling"]["short_factor"].erase(0);
  EXPECT_THAT(failure(config), HasSubstr("'short_factor' has 7 numbers, heads of 16 need 8"));
  config["rope_scaling"]["short_factor"] = {1, 0};
  EXPECT_THAT(failure(config), HasSubstr("'short_factor' must be a list of positive numbers"));
}

TEST(ModelSpec, ReadsGpt2) {
  const Json config = Json::parse(R"({"architectures": ["GPT2LMHeadModel"], "n_embd": 48,
      "n_head": 4, "n_layer": 2, "n_positions": 128, "vocab_size": 199, "n_inner": null,
      "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new"})");
  const ModelSpec spec = parse(config);
  EXPECT_EQ(spec.intermediate, 192);
  EXPECT_EQ(spec.norm, NormKind::kLayer);
  EXPECT_EQ(spec.activation, Activation::kGeluTanh);
  EXPECT_TRUE(spec.learned_positions);
  EXPECT_TRUE(spec.tied_embeddings);
  EXPECT_FALSE(spec.gated_mlp);
  EXPECT_EQ(spec.rope.kind, RopeSpec::Kind::kNone);
}

TEST(ModelSpec, SequenceClassifierHasOneLabel) {
  Json config = llama_spec_config();
  config["architectures"] = {"LlamaForSequenceClassification"};
  EXPECT_THAT(failure(config), HasSubstr("id2label"));
  config["id2label"] = {{"0", "LABEL_0"}};
  EXPECT_TRUE(parse(config).scalar_head);
  config["id2label"] = {{"0", "A"}, {"1", "B"}};
  EXPECT_THAT(failure(config), HasSubstr("2 labels"));
}

TEST(ModelSpec, UnknownArchitectureListsTheKnownOnes) {
  Json config = llama_spec_config();
  config["architectures"] = {"LlamaForCausalML"};
  EXPECT_THAT(failure(config), HasSubstr("did you mean 'LlamaForCausalLM'?"));
  config["architectures"] = {"MambaForCausalLM"};
  EXPECT_THAT(failure(config), HasSubstr("known families: llama (LlamaForCausalLM, LlamaFor"));
  config.erase("architectures");
  EXPECT_THAT(failure(config), HasSubstr("'architectures'"));
}

// It would load their tensors under mathematics that they were not trained with.
TEST(ModelSpec, ArchitecturesOfOtherFamiliesAreNotProposed) {
  Json config = llama_spec_config();
  for (const char* other : {"Gemma3nForCausalLM", "Phi3SmallForCausalLM", "Qwen3MoeForCausalLM",
                            "MixtralForCausalLM", "Llama4ForCausalLM", "GPT2ForCausalLM"}) {
    config["architectures"] = {other};
    EXPECT_THAT(failure(config), AllOf(HasSubstr(cat("unknown architecture '", other, "'; known")),
                                       HasSubstr("gemma (GemmaForCausalLM")));
  }
  config["architectures"] = {"llamaForCausalLm"};
  EXPECT_THAT(failure(config), HasSubstr("did you mean 'LlamaForCausalLM'?"));
  config["architectures"] = {"Gemma3ForConditionalGeneration"};
  EXPECT_THAT(failure(config), HasSubstr("only the text model can be trained"));
}

struct BadKey {
  const char* key;
  Json value;
  const char* message;
};

// The sizes that a run has are those that the planner prices, in every family.
TEST(ModelSpec, ItsSizeIsTheOneThatIsPriced) {
  Json config = llama_spec_config();
  config["sliding_window"] = 128;
  for (const ModelFamily& family : model_families()) {
    config["architectures"] = {family.lm_architecture};
    config["model_type"] = family.model_type;
    const auto size = parse_model_size(config.dump(), "config.json");
    ASSERT_TRUE(size.ok()) << size.status().message();
    EXPECT_EQ(static_cast<const ModelSize&>(parse(config)), *size);
  }
}

TEST(ModelSpec, WhatIsOnlyPricedIsRefusedByName) {
  const BadKey cases[] = {
      {"num_local_experts", 8, "the model has 8 experts a layer; such models can be planned"},
      {"kv_lora_rank", 16, "'kv_lora_rank': latent attention can be planned, not run"},
      {"word_embed_proj_dim", 32, "'word_embed_proj_dim': projected embeddings can be planned"},
      {"intermediate_size", nullptr, "missing key 'intermediate_size'"}};
  for (const BadKey& bad : cases) {
    Json config = llama_spec_config();
    config.update({{"num_experts_per_tok", 2},
                   {"qk_nope_head_dim", 16},
                   {"qk_rope_head_dim", 8},
                   {"v_head_dim", 16}});
    config[bad.key] = bad.value;
    EXPECT_THAT(failure(config), HasSubstr(bad.message));
    EXPECT_TRUE(parse_model_size(config.dump(), "config.json").ok()) << bad.key;
  }
}

TEST(ModelSpec, BadValuesNameTheKey) {
  const BadKey cases[] = {
      {"hidden_size", nullptr, "missing key 'hidden_size'"},
      {"hidden_size", 64.5, "'hidden_size' must be a whole number from 1 to 268435456, is 64.5"},
      {"hidden_size", "64", "'hidden_size' must be a whole number from 1 to 268435456, is \"64\""},
      {"num_hidden_layers", 0, "'num_hidden_layers' must be a whole number from 1"},
      {"num_hidden_layers", 1000000, "'num_hidden_layers' is 1000000; at most 4096"},
      {"vocab_size", 1e18, "'vocab_size'"},
      {"num_key_value_heads", 3, "multiple of 'num_key_value_heads'"},
      {"head_dim", 15, "head size is 15"},
      {"hidden_act", "relu6", "'relu6' is not supported"},
      {"rms_norm_eps", "small", "'rms_norm_eps' must be a number"},
      {"rms_norm_eps", 0, "epsilon must be positive"},
      {"tie_word_embeddings", 1, "'tie_word_embeddings' must be true or false"},
      {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2}}, "'yarn' is not supported"},
      {"rope_scaling", {{"rope_type", "linear"}}, "rope_scaling: missing key 'factor'"},
      {"rope_scaling", 3, "'rope_scaling' must be an object"},
      {"torch_dtype", "int8", "dtype 'int8'"},
      {"eos_token_id", "end", "'eos_token_id'"},
      {"quantization_config", {{"bits", 4}}, "quantized"}};
  for (const BadKey& bad : cases) {
    Json config = llama_spec_config();
    config[bad.key] = bad.value;
    EXPECT_THAT(failure(config), HasSubstr(bad.message));
  }
}

TEST(ModelSpec, NotAnObjectIsAnError) {
  EXPECT_THAT(failure(Json::array()), HasSubstr("must be a JSON object"));
  EXPECT_FALSE(parse_model_spec("{\"a\": ", "c").ok());
}

TEST(ModelTensors, RangesCoverTheModelOnce) {
  const ModelSpec spec = parse(llama_spec_config());
  const auto all = model_tensors(spec, 0, 2);
  auto parts = model_tensors(spec, 0, 1);
  for (const TensorSpec& tensor : model_tensors(spec, 1, 2)) parts.push_back(tensor);
  EXPECT_EQ(parts, all);
  EXPECT_EQ(all.front().name, "model.embed_tokens.weight");
  EXPECT_EQ(all.back().name, "lm_head.weight");
  EXPECT_EQ(all[3].name, "model.layers.0.self_attn.k_proj.weight");
  EXPECT_EQ(all[3].shape, (std::vector<int64_t>{32, 64}));
}

TEST(ModelTensors, TiedModelHasNoHeadExceptOnALaterStage) {
  Json config = llama_spec_config();
  config["tie_word_embeddings"] = true;
  const ModelSpec spec = parse(config);
  EXPECT_EQ(model_tensors(spec, 0, 2).back().name, "model.norm.weight");
  EXPECT_EQ(model_tensors(spec, 1, 2).back().name, "model.embed_tokens.weight");
}

}  // namespace
}  // namespace braid::inline models
