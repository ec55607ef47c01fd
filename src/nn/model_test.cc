#include "nn/model.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/adapter_dropout.h"
#include "nn/model_share.h"
#include "nn/test_models.h"

namespace braid::inline nn {
namespace {

const std::vector<std::vector<int32_t>> kSequences = {{3, 14, 15, 92, 6, 5}, {35, 89, 79}};

using Gradients = std::map<std::string, at::Tensor>;

// Gradients of the sum of squared hidden states of a packed batch.
Gradients gradients(Model& model) {
  const at::Tensor hidden = model.forward(pack_sequences(kSequences, at::kCPU), nullptr);
  (hidden * hidden).sum().backward();
  Gradients grads;
  for (const auto& item : model.trainable_parameters())
    if (item.second.grad().defined()) grads[item.first] = item.second.grad().clone();
  return grads;
}

double loss_of(Model& model) {
  const at::NoGradGuard no_grad;
  const at::Tensor hidden = model.forward(pack_sequences(kSequences, at::kCPU), nullptr);
  return (hidden.to(at::kDouble) * hidden.to(at::kDouble)).sum().item<double>();
}

at::Tensor hidden_of(Model& model) {
  const at::NoGradGuard no_grad;
  return model.forward(pack_sequences(kSequences, at::kCPU), nullptr);
}

at::Tensor parameter(const Model& model, const std::string& name) {
  for (const auto& item : model.parameters())
    if (item.first == name) return item.second;
  ADD_FAILURE() << "no parameter " << name;
  return {};
}

std::unique_ptr<Model> load_tiny(const std::string& name, const ModelOptions& options = {}) {
  auto model = load_model(golden_folder(name), {.model = options});
  EXPECT_TRUE(model.ok()) << model.status().message();
  return std::move(model).value();
}

class EveryFamily : public testing::TestWithParam<const char*> {};

// Two groups, with a prompt of more than a page and one of less.
const std::vector<SharedStart> kStarts = {{}, {0, 40}, {0, 40}, {}, {3, 2}};

std::vector<std::vector<int32_t>> group_sequences() {
  std::vector<std::vector<int32_t>> out;
  for (const int32_t length : {47, 52, 41, 4, 9}) {
    const size_t s = out.size(), shared = static_cast<size_t>(kStarts[s].tokens);
    std::vector<int32_t> sequence(static_cast<size_t>(length));
    for (size_t i = 0; i < sequence.size(); ++i)
      sequence[i] = i < shared ? out[static_cast<size_t>(kStarts[s].host)][i]
                               : static_cast<int32_t>((17 * i + 31 * s + i * i) % 90);
    out.push_back(std::move(sequence));
  }
  return out;
}

// Rows of the whole sequences that a batch with shared starts has.
at::Tensor own_rows() {
  std::vector<int64_t> rows;
  int64_t row = 0;
  const auto sequences = group_sequences();
  for (size_t s = 0; s < sequences.size(); ++s)
    for (size_t i = 0; i < sequences[s].size(); ++i, ++row)
      if (static_cast<int32_t>(i) >= kStarts[s].tokens) rows.push_back(row);
  return at::tensor(rows, at::kLong);
}

TEST_P(EveryFamily, SharedStartsGiveTheBitsOfWholeSequences) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const auto model = load_tiny(GetParam(), {.dtype = dtype});
    const at::NoGradGuard no_grad;
    const auto sequences = group_sequences();
    const at::Tensor whole = model->forward(pack_sequences(sequences, at::kCPU), nullptr);
    const at::Tensor shared = model->forward(pack_sequences(sequences, at::kCPU, kStarts), nullptr);
    EXPECT_TRUE(shared.equal(whole.index_select(0, own_rows()))) << dtype;
  }
}

// Weights, norms, biases, embeddings: those of all, and those of adapters, whose dropout leaves out
// the same numbers.
TEST_P(EveryFamily, SharedStartsGiveTheGradientsOfWholeSequences) {
  for (const int64_t rank : {0, 4}) {
    ModelOptions options;
    options.lora = {.rank = rank, .targets = {"all-linear"}, .dropout = 0.25};
    if (rank > 0) options.kept = KeptActivations::kInputs;
    const auto gradients_of = [&](const std::vector<SharedStart>& starts) {
      const auto model = load_tiny(GetParam(), options);
      const at::AutoGradMode grad(true);
      const at::Tensor h =
          model->forward(pack_sequences(group_sequences(), at::kCPU, starts), nullptr);
      const at::Tensor own = starts.empty() ? h.index_select(0, own_rows()) : h;
      (own * own.detach().sin()).sum().backward();
      Gradients out;
      for (const auto& [name, parameter] : model->trainable_parameters())
        if (parameter.grad().defined()) out[name] = parameter.grad();
      return out;
    };
    const Gradients whole = gradients_of({}), shared = gradients_of(kStarts);
    ASSERT_EQ(shared.size(), whole.size());
    double squares = 0;
    for (const auto& [name, gradient] : whole) squares += gradient.square().sum().item<double>();
    for (const auto& [name, gradient] : whole) {
      const double size = std::max(gradient.norm().item<double>(), 1e-4 * std::sqrt(squares));
      EXPECT_LT((shared.at(name) - gradient).norm().item<double>(), 1e-5 * size) << name;
    }
  }
}

// Prefill at once, in pieces, and token by token.
TEST_P(EveryFamily, CachesGiveTheBitsOfWholeSequences) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const auto model = load_tiny(GetParam(), {.dtype = dtype});
    const at::NoGradGuard no_grad;
    const std::vector<int32_t> ids = group_sequences()[0];
    const at::Tensor whole = model->forward(pack_sequences({ids}, at::kCPU), nullptr);
    const ModelSpec& spec = model->spec();
    const auto length = static_cast<int64_t>(ids.size());
    for (const int64_t piece : {length, int64_t{13}, int64_t{1}}) {
      std::vector<KvLayer> kv;
      for (int64_t layer = 0; layer < spec.layers; ++layer)
        kv.push_back(
            allocate_kv(2, spec.kv_heads, spec.head_dim, at::TensorOptions().dtype(dtype)));
      for (int64_t begin = 0; begin < length; begin += piece) {
        const int64_t count = std::min(piece, length - begin);
        TokenBatch batch = pack_sequences({ids}, at::kCPU);
        batch.tokens_T = batch.tokens_T.narrow(0, begin, count);
        batch.positions_T = batch.positions_T.narrow(0, begin, count);
        batch.row_keys_T.clear();
        batch.attention = {
            {0, static_cast<int32_t>(count)}, {static_cast<int32_t>(begin)}, {{1, 0}}};
        const at::Tensor rows = model->forward(batch, &kv);
        EXPECT_TRUE(rows.equal(whole.narrow(0, begin, count)))
            << dtype << ", pieces of " << piece << " at " << begin;
      }
    }
  }
}

// The derivative along each tensor's own gradient equals the squared norm of that gradient.
TEST_P(EveryFamily, GradientsMatchFiniteDifferences) {
  const auto model = load_tiny(GetParam());
  const Gradients grads = gradients(*model);
  const at::NoGradGuard no_grad;
  for (const auto& item : model->parameters()) {
    ASSERT_EQ(grads.count(item.first), item.first == "lm_head.weight" ? 0u : 1u) << item.first;
    if (item.first == "lm_head.weight") continue;
    const at::Tensor& grad = grads.at(item.first);
    const double squared = (grad * grad).sum().item<double>();
    const double step = 0.02 / std::sqrt(squared);
    at::Tensor value = item.second;
    const at::Tensor original = value.clone();
    value.copy_(original + grad * step);
    const double above = loss_of(*model);
    value.copy_(original - grad * step);
    const double below = loss_of(*model);
    value.copy_(original);
    const double slope = (above - below) / (2 * step);
    // A key bias cannot change a softmax over keys when nothing rotates: both sides are near zero.
    EXPECT_NEAR(slope, squared, 0.03 * squared + 1e-3 * std::sqrt(squared)) << item.first;
  }
}

constexpr KeptActivations kParts[] = {KeptActivations::kInputs, KeptActivations::kWithoutAttention};

TEST_P(EveryFamily, RecomputationGivesTheSameBits) {
  const auto kept = load_tiny(GetParam());
  const Gradients expected = gradients(*kept);
  for (const KeptActivations part : kParts) {
    const Gradients found = gradients(*load_tiny(GetParam(), {.kept = part}));
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& item : expected) EXPECT_TRUE(found.at(item.first).equal(item.second));
  }
}

TEST_P(EveryFamily, PackingOnceOrForEachGemmGivesTheSameBits) {
  ModelSpec spec = small_spec(GetParam());
  spec.hidden = 256;  // where packed GEMMs pay
  spec.intermediate = 512;
  const auto once = make_model(spec, {}).value();
  const auto each_time = make_model(spec, {}).value();
  once->keep_packed(true);
  const Gradients expected = gradients(*once), found = gradients(*each_time);
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& item : expected)
    EXPECT_TRUE(found.at(item.first).equal(item.second)) << item.first;
}

TEST_P(EveryFamily, LayerRangesComposeToTheWholeModel) {
  const auto whole = load_tiny(GetParam());
  const auto first = load_tiny(GetParam(), {.ranges = {{0, 1}}});
  const auto second = load_tiny(GetParam(), {.ranges = {{1, 2}}});
  const at::NoGradGuard no_grad;
  const TokenBatch batch = pack_sequences(kSequences, at::kCPU);
  const at::Tensor middle = first->forward(batch, nullptr, {});
  EXPECT_TRUE(second->forward(batch, nullptr, middle).equal(hidden_of(*whole)));
  EXPECT_TRUE(second->head_weight().equal(whole->head_weight()));
  const auto both = load_tiny(GetParam(), {.ranges = {{0, 1}, {1, 2}}});
  const at::Tensor between = both->forward(batch, nullptr, {}, 0);
  EXPECT_TRUE(between.equal(middle));
  EXPECT_TRUE(both->forward(batch, nullptr, between, 1).equal(hidden_of(*whole)));
  EXPECT_EQ(both->parameters().size(), whole->parameters().size());
}

TEST_P(EveryFamily, InitialWeightsAreAFunctionOfTheSeed) {
  const auto a = small_model(GetParam(), {.seed = 5}), b = small_model(GetParam(), {.seed = 5});
  const auto c = small_model(GetParam(), {.seed = 6});
  EXPECT_TRUE(hidden_of(*a).equal(hidden_of(*b)));
  EXPECT_FALSE(hidden_of(*a).equal(hidden_of(*c)));
  const at::Tensor embedding = a->parameters()[0].second;
  EXPECT_NEAR(embedding.std().item<double>(), 0.02, 0.001);
}

INSTANTIATE_TEST_SUITE_P(Families, EveryFamily,
                         testing::Values("llama", "llama3", "qwen2", "qwen3", "mistral", "gemma",
                                         "gemma2", "gemma3", "phi3", "phi3-long", "qwen2-mixed",
                                         "gpt2"));

TEST(Model, PackedBatchListsSequences) {
  const TokenBatch batch = pack_sequences(kSequences, at::kCPU);
  EXPECT_EQ(batch.attention.query_begin, (std::vector<int32_t>{0, 6, 9}));
  EXPECT_EQ(batch.attention.cached, (std::vector<int32_t>{0, 0}));
  EXPECT_EQ(batch.tokens_T[6].item<int64_t>(), 35);
  EXPECT_EQ(batch.positions_T[8].item<int64_t>(), 2);
}

TEST(Model, SharedInstanceFollowsChangesACopyDoesNot) {
  const auto model = load_tiny("qwen2");
  const auto shared = share_model(*model), copy = copy_model(*model);
  const at::Tensor before = hidden_of(*model);
  {
    const at::NoGradGuard no_grad;
    parameter(*model, "model.layers.1.self_attn.k_proj.weight").mul_(2);
  }
  model->weights_changed();
  EXPECT_FALSE(hidden_of(*model).equal(before));
  EXPECT_TRUE(hidden_of(*shared).equal(hidden_of(*model)));
  EXPECT_TRUE(hidden_of(*copy).equal(before));
}

TEST(Model, SharedInstanceHasItsOwnGradients) {
  const auto model = load_tiny("llama");
  const auto shared = share_model(*model);
  const Gradients grads = gradients(*model);
  EXPECT_FALSE(shared->parameters()[0].second.grad().defined());
  EXPECT_TRUE(gradients(*shared).at("model.norm.weight").equal(grads.at("model.norm.weight")));
}

TEST(Model, CopyTrainsAlone) {
  const auto model = load_tiny("llama");
  const auto copy = copy_model(*model);
  const Gradients expected = gradients(*model), found = gradients(*copy);
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& item : expected) EXPECT_TRUE(found.at(item.first).equal(item.second));
}

TEST(Model, CriticFromLanguageModelStartsAtZero) {
  const auto critic = load_model(golden_folder("llama"), {.model = {}, .scalar_head = true});
  ASSERT_TRUE(critic.ok()) << critic.status().message();
  EXPECT_EQ((*critic)->spec().architecture, "LlamaForSequenceClassification");
  const at::Tensor values = scalar_outputs(**critic, hidden_of(**critic));
  EXPECT_EQ(values.sizes(), at::IntArrayRef({9}));
  EXPECT_EQ(values.abs().max().item<float>(), 0);
  EXPECT_TRUE(hidden_of(**critic).equal(hidden_of(*load_tiny("llama"))));
}

TEST(Lora, NewAdapterChangesNothingAndOnlyItIsTrained) {
  const auto base = load_tiny("llama");
  const auto model = load_tiny("llama", {.lora = {.rank = 2, .alpha = 4}});
  EXPECT_TRUE(hidden_of(*model).equal(hidden_of(*base)));
  const auto trainable = model->trainable_parameters();
  ASSERT_EQ(trainable.size(), 16u);  // 2 layers x 4 targets x (A, B)
  EXPECT_EQ(trainable[0].first, "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight");
  EXPECT_EQ(trainable[0].second.sizes(), at::IntArrayRef({2, 32}));
  for (const auto& item : gradients(*model))
    EXPECT_NE(item.first.find(".lora_"), std::string::npos);
  EXPECT_FALSE(parameter(*model, "model.norm.weight").grad().defined());
}

TEST(Lora, ScalarHeadIsTrainedBesideAdapters) {
  ModelOptions options;
  options.lora.rank = 2;
  const auto critic = load_model(golden_folder("llama"), {.model = options, .scalar_head = true});
  ASSERT_TRUE(critic.ok());
  EXPECT_EQ((*critic)->trainable_parameters().size(), 17u);
  EXPECT_EQ((*critic)->trainable_parameters()[0].first, "score.weight");
}

TEST(Lora, ReferenceSharesTheBaseWithoutAdapter) {
  const auto actor = load_tiny("llama", {.lora = {.rank = 2}});
  const auto reference = share_model(*actor);
  reference->set_adapters(false);
  {
    const at::NoGradGuard no_grad;
    for (const auto& item : actor->trainable_parameters()) at::Tensor(item.second).fill_(0.1);
  }
  EXPECT_FALSE(hidden_of(*actor).equal(hidden_of(*reference)));
  EXPECT_TRUE(hidden_of(*reference).equal(hidden_of(*load_tiny("llama"))));
  EXPECT_EQ(actor->head_weight().data_ptr(), reference->head_weight().data_ptr());
}

TEST(Lora, RecomputationKeepsAdapterGradients) {
  const LoraOptions lora = {.rank = 2, .alpha = 16, .targets = {"q_proj", "up_proj"}};
  const auto kept = load_tiny("llama", {.lora = lora});
  const Gradients expected = gradients(*kept);
  for (const KeptActivations part : kParts) {
    const Gradients found = gradients(*load_tiny("llama", {.kept = part, .lora = lora}));
    ASSERT_EQ(found.size(), 8u);
    for (const auto& item : expected) EXPECT_TRUE(found.at(item.first).equal(item.second));
  }
}

TEST(Lora, AllLinearAdaptsEveryMatrixOfTheLayersAndNotTheHead) {
  const auto model = load_tiny("llama", {.lora = {.rank = 2, .targets = {"all-linear"}}});
  const auto trainable = model->trainable_parameters();
  EXPECT_EQ(trainable.size(), 28u);  // 2 layers x 7 matrices x (A, B)
  for (const auto& item : trainable) EXPECT_EQ(item.first.find("lm_head"), std::string::npos);
}

// Puts numbers into every B, which begin at zero.
void fill_adapters(Model& model) {
  const at::NoGradGuard no_grad;
  for (const auto& item : model.trainable_parameters())
    if (item.first.find("lora_B") != std::string::npos) at::Tensor(item.second).fill_(0.05);
  model.weights_changed();
}

TEST(Lora, TheHeadCanHaveAnAdapter) {
  const auto model = load_tiny("llama", {.lora = {.rank = 2, .targets = {"lm_head"}}});
  ASSERT_EQ(model->trainable_parameters().size(), 2u);
  EXPECT_EQ(model->trainable_parameters()[0].first, "base_model.model.lm_head.lora_A.weight");
  const at::Tensor before = model->head_weight().detach().clone();
  EXPECT_TRUE(before.equal(load_tiny("llama")->head_weight()));
  fill_adapters(*model);
  EXPECT_FALSE(model->head_weight().equal(before));
  (model->head_weight() * model->head_weight()).sum().backward();
  for (const auto& item : model->trainable_parameters())
    EXPECT_GT(item.second.grad().abs().max().item<float>(), 0) << item.first;
  EXPECT_FALSE(parameter(*model, "lm_head.weight").grad().defined());
  const auto reference = base_view(*model);
  EXPECT_TRUE(reference->head_weight().equal(before));
  const at::NoGradGuard no_grad;
  const at::Tensor h = at::ones({8, model->spec().hidden});
  EXPECT_TRUE(logits(*reference, h).equal(logits(*load_tiny("llama"), h)));
  EXPECT_FALSE(logits(*reference, h).equal(logits(*model, h)));
}

ModelOptions with_dropout(double share) {
  return {.lora = {.rank = 2, .targets = {"all-linear"}, .dropout = share}};
}

TEST(Lora, DropoutIsAFunctionOfSeedAndTokens) {
  const auto model = load_tiny("llama", with_dropout(0.5));
  fill_adapters(*model);
  const auto plain = load_tiny("llama", with_dropout(0));
  fill_adapters(*plain);
  const auto hidden = [&](uint64_t seed, const std::vector<std::vector<int32_t>>& sequences) {
    model->set_dropout_seed(seed);
    return model->forward(pack_sequences(sequences, at::kCPU), nullptr).detach();
  };
  const at::Tensor first = hidden(1, kSequences);
  EXPECT_TRUE(first.equal(hidden(1, kSequences)));
  EXPECT_FALSE(first.equal(hidden(2, kSequences)));
  // Another cut into micro-batches leaves out the same.
  EXPECT_LT((first.narrow(0, 6, 3) - hidden(1, {kSequences[1]})).abs().max().item<float>(), 1e-5);
  // Without gradients nothing is left out.
  EXPECT_TRUE(hidden_of(*model).equal(hidden_of(*plain)));
}

TEST(Lora, DropoutLeavesOutItsShareAndKeepsTheMean) {
  const std::vector<std::vector<int32_t>> sequences = {std::vector<int32_t>(64, 7)};
  const AdapterDropout dropout = adapter_dropout(pack_sequences(sequences, at::kCPU), 0.25, 3);
  const at::Tensor kept = drop_numbers(dropout, "layer", 0, at::ones({64, 256}));
  EXPECT_NEAR((kept == 0).to(at::kFloat).mean().item<double>(), 0.25, 0.02);
  EXPECT_NEAR(kept.mean().item<double>(), 1, 0.03);
  EXPECT_FALSE(kept.equal(drop_numbers(dropout, "other layer", 0, at::ones({64, 256}))));
  EXPECT_FALSE(kept[0].equal(kept[1]));
  const at::Tensor second = drop_numbers(dropout, "layer", 99, at::ones({64, 157}));
  EXPECT_TRUE(second.equal(kept.narrow(1, 99, 157)));
}

TEST(Lora, RecomputationLeavesOutTheSame) {
  const auto found = [](KeptActivations kept) {
    ModelOptions options = with_dropout(0.3);
    options.kept = kept;
    const auto model = load_tiny("llama", options);
    fill_adapters(*model);
    model->set_dropout_seed(5);
    return gradients(*model);
  };
  const Gradients expected = found(KeptActivations::kAll);
  for (const KeptActivations part : kParts)
    for (const auto& [name, gradient] : found(part))
      EXPECT_TRUE(gradient.equal(expected.at(name))) << name;
}

std::string option_failure(const ModelOptions& options) {
  const auto model = make_model(small_spec("llama"), options);
  EXPECT_EQ(model.status().code(), Code::kInvalidInput);
  return model.status().message();
}

TEST(Model, BadOptionsAreErrors) {
  using testing::HasSubstr;
  const LoraOptions unknown = {.rank = 2, .alpha = 16, .targets = {"query"}};
  EXPECT_THAT(option_failure({.lora = unknown}), HasSubstr("'query' names no module of llama"));
  EXPECT_THAT(option_failure({.lora = {.rank = -1}}), HasSubstr("rank"));
  EXPECT_THAT(option_failure({.lora = {.rank = 100000}}), HasSubstr("smallest side"));
  EXPECT_THAT(option_failure({.lora = {.rank = 2, .targets = {}}}), HasSubstr("list is empty"));
  const auto tied =
      check_model_options(small_spec("gemma"), {.lora = {.rank = 2, .targets = {"lm_head"}}});
  EXPECT_THAT(tied.message(), HasSubstr("tie_word_embeddings"));
  EXPECT_THAT(option_failure({.ranges = {{1, 3}}}), HasSubstr("layers 1 to 3"));
  EXPECT_THAT(option_failure({.ranges = {{1, 2}, {0, 1}}}), HasSubstr("layers 0 to 1"));
  EXPECT_THAT(option_failure({.tensor_parallel = {.tp_rank = 0, .tp_size = 2}}),
              HasSubstr("tensor parallelism"));
}

}  // namespace
}  // namespace braid::inline nn
