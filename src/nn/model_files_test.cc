// Damaged, foreign and exported folders.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "base/json.h"
#include "nn/safetensors.h"
#include "nn/test_models.h"

namespace braid::inline nn {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Named = std::vector<std::pair<std::string, at::Tensor>>;

class SafetensorsTest : public FolderTest {
 protected:
  // A file with the given header text and number of data bytes.
  std::string write(const std::string& header, size_t data_bytes) {
    const uint64_t length = header.size();
    std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
    bytes += header + std::string(data_bytes, '\0');
    return write_raw(bytes);
  }
  std::string write_raw(const std::string& bytes) {
    EXPECT_TRUE(write_file_atomic(path_, bytes).ok());
    return path_;
  }
  void expect_error(const std::string& path, const std::string& message) {
    const Status status = SafetensorsFile::open(path).status();
    EXPECT_EQ(status.code(), Code::kInvalidInput) << message;
    EXPECT_THAT(status.message(), AllOf(HasSubstr(path_), HasSubstr(message)));
  }
  std::string path_ = join_path(folder_, "x.safetensors");
};

TEST_F(SafetensorsTest, WritesWhatItReads) {
  const Named tensors = {{"b", at::full({2, 3}, 1.5, at::kBFloat16)},
                         {"a", at::full({1}, -2, at::kFloat)},
                         {"empty", at::zeros({0, 4}, at::kHalf)}};
  ASSERT_TRUE(write_safetensors(path_, tensors).ok());
  const auto file = SafetensorsFile::open(path_);
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ(file->entries().size(), 3u);
  for (const auto& item : tensors) EXPECT_TRUE(file->read(item.first)->equal(item.second));
}

TEST_F(SafetensorsTest, ReadsBlocksAndNoOtherBytes) {
  const at::Tensor matrix = at::arange(35, at::kFloat).view({5, 7});
  const at::Tensor vector = at::arange(6, at::kBFloat16);
  ASSERT_TRUE(write_safetensors(path_, {{"m", matrix}, {"v", vector}}).ok());
  int64_t before = safetensors_bytes_read();
  const auto file = SafetensorsFile::open(path_);
  EXPECT_EQ(safetensors_bytes_read() - before, file->header().size());
  before = safetensors_bytes_read();
  EXPECT_TRUE(file->read_block("m", {1, 4}, {2, 6})->equal(matrix.slice(0, 1, 4).slice(1, 2, 6)));
  EXPECT_TRUE(file->read_block("m", {1, 3}, {0, 7})->equal(matrix.slice(0, 1, 3)));
  EXPECT_TRUE(file->read_block("v", {4, 6}, {0, 1})->equal(vector.slice(0, 4, 6)));
  EXPECT_EQ(safetensors_bytes_read() - before, 4 * 12 + 4 * 14 + 2 * 2);
  EXPECT_EQ(file->read_block("m", {2, 2}, {0, 7})->numel(), 0);
}

// Slices of 2 and of 4 ranks have blocks in common, and a changed number shows in its own.
TEST(ReadBlocks, OfSlicesThatOverlapAreEqual) {
  const at::Tensor matrix = at::arange(16 * 24, at::kFloat).view({16, 24});
  const auto read = [&](int64_t dim, int64_t part, int64_t parts, const at::Tensor& values) {
    const int64_t size = values.size(dim) / parts;
    const IndexRange cut{part * size, (part + 1) * size};
    ReadBlocks out;
    note_read({"a/b.safetensors",
               "m",
               {16, 24},
               dim,
               dim == 0 ? cut : IndexRange{0, 16},
               dim == 1 ? cut : IndexRange{0, 24}},
              values.narrow(dim, cut.begin, size), &out);
    return out;
  };
  for (const int64_t dim : {0, 1}) {
    const ReadBlocks whole = read(dim, 0, 1, matrix), half = read(dim, 1, 2, matrix);
    EXPECT_EQ(whole.size(), 8u);
    EXPECT_EQ(half.size(), 4u);
    for (const auto& [block, digest] : half) EXPECT_EQ(whole.at(block), digest) << block;
    for (const auto& [block, digest] : read(dim, 3, 4, matrix)) EXPECT_EQ(half.at(block), digest);
  }
  EXPECT_EQ(read(0, 1, 2, matrix).count("b.safetensors, tensor m[8:10, 0:24]"), 1u);
  at::Tensor other = matrix.clone();
  other[9][3] = 7;
  const ReadBlocks before = read(0, 0, 1, matrix), after = read(0, 0, 1, other);
  for (const auto& [block, digest] : before)
    EXPECT_EQ(after.at(block) == digest, block != "b.safetensors, tensor m[8:10, 0:24]") << block;
}

TEST_F(SafetensorsTest, ShortAndCorruptHeadersAreErrors) {
  expect_error(write_raw("abc"), "truncated: 3 bytes");
  expect_error(write_raw(std::string(8, '\x7f')), "corrupt header: its length");
  expect_error(write_raw(std::string("\x40\0\0\0\0\0\0\0{}", 10)),
               "truncated: the header needs 64");
  expect_error(write("{\"a\": ", 0), "corrupt header");
  expect_error(write("[]", 0), "not a JSON object");
  expect_error(write(R"({"a": 1})", 0), "tensor a: corrupt header");
}

TEST_F(SafetensorsTest, InconsistentEntriesNameTheTensor) {
  const auto entry = [](const char* dtype, const char* shape, const char* range) {
    return cat(R"({"w": {"dtype": ")", dtype, R"(", "shape": )", shape, R"(, "data_offsets": )",
               range, "}}");
  };
  expect_error(write(entry("F99", "[2]", "[0, 8]"), 8), "tensor w: unknown dtype 'F99'");
  expect_error(write(entry("F32", "[3]", "[0, 8]"), 8), "need 12 bytes, its range has 8");
  expect_error(write(entry("F32", "[-2]", "[0, 8]"), 8), "tensor w: corrupt header: 'shape'");
  expect_error(write(entry("F32", "[4611686018427387904, 4]", "[0, 8]"), 8), "too many bytes");
  expect_error(write(entry("F32", "[2]", "[8, 0]"), 8), "not a [begin, end] range");
  expect_error(write(entry("F32", "[2]", "[0, 8]"), 7), "tensor w: truncated");
  expect_error(write(entry("F32", "[2]", "[0, 8]"), 9), "1 bytes after the last tensor");
  expect_error(write(entry("F32", "[2]", "[4, 12]"), 12), "leaves a gap");
}

TEST_F(SafetensorsTest, OverlapAndDuplicateAreErrors) {
  const std::string a = R"("a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]})";
  const std::string b = R"("b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]})";
  expect_error(write(cat("{", a, ", ", b, "}"), 12), "tensor b: corrupt header: overlaps");
  expect_error(write(cat("{", a, ", ", a, "}"), 8), "occurs twice");
}

class ModelFilesTest : public FolderTest {
 protected:
  Named read_all(const std::string& folder) {
    const auto weights = WeightFolder::open(folder);
    EXPECT_TRUE(weights.ok()) << weights.status().message();
    Named tensors;
    for (const std::string& name : weights->names())
      tensors.emplace_back(name, *weights->read(name));
    return tensors;
  }
  void write_weights(const std::string& folder, const Named& tensors) {
    ASSERT_TRUE(write_safetensors(join_path(folder, "model.safetensors"), tensors).ok());
  }
  std::string load_failure(const std::string& folder) {
    const auto model = load_model(folder, {});
    EXPECT_EQ(model.status().code(), Code::kInvalidInput);
    EXPECT_THAT(model.status().message(), HasSubstr(folder));
    return model.status().message();
  }
  std::unique_ptr<Model> load(const std::string& folder, const LoadOptions& options = {}) {
    auto model = load_model(folder, options);
    EXPECT_TRUE(model.ok()) << model.status().message();
    return std::move(model).value();
  }
  at::Tensor hidden(Model& model) {
    const at::NoGradGuard no_grad;
    return model.forward(pack_sequences({{3, 14, 15, 92}, {6, 5}}, at::kCPU), nullptr);
  }
  std::string bytes(const std::string& folder, const std::string& name) {
    const auto text = read_file(join_path(folder, name));
    EXPECT_TRUE(text.ok()) << text.status().message();
    return text.ok() ? *text : "";
  }
  void expect_equal_models(Model& a, Model& b, double tolerance) {
    EXPECT_TRUE(hidden(a).allclose(hidden(b), tolerance, tolerance / 10));
    EXPECT_TRUE(a.head_weight().allclose(b.head_weight(), tolerance, tolerance / 10));
  }
  // Random adapters give the same numbers again from a merged export and from one beside the base.
  void expect_reload(const std::string& name, const LoraOptions& adapters) {
    const at::NoGradGuard no_grad;
    const std::string source = golden_folder(name);
    LoadOptions options;
    options.model.lora = adapters;
    const auto model = load(source, options);
    for (const auto& item : model->trainable_parameters())
      at::Tensor(item.second).normal_(0, 0.1, std::nullopt);
    model->weights_changed();
    const std::string merged = join_path(folder_, "merged"), apart = join_path(folder_, "apart");
    ASSERT_TRUE(save_model(*model, merged, {.source_folder = source, .dtype = at::kFloat}).ok());
    expect_equal_models(*load(merged), *model, 1e-4);
    EXPECT_FALSE(hidden(*load(source)).allclose(hidden(*model), 1e-2, 1e-2));
    ExportOptions beside = {.source_folder = source};
    beside.merge_adapters = false;
    ASSERT_TRUE(save_model(*model, apart, beside).ok());
    const auto lora = read_lora_options(apart);
    ASSERT_TRUE(lora.ok()) << lora.status().message();
    options.model.lora = *lora;
    const auto again = load(source, options);
    ASSERT_TRUE(load_adapters(*again, apart).ok());
    expect_equal_models(*again, *model, 0);
  }
};

TEST_F(ModelFilesTest, MissingExtraAndMisshapenTensorsAreNamed) {
  const std::string folder = copy_golden("llama");
  const Named all = read_all(folder);
  Named fewer(all.begin() + 1, all.end());
  write_weights(folder, fewer);
  EXPECT_THAT(load_failure(folder), HasSubstr("tensor lm_head.weight is missing"));
  Named more = all;
  more.emplace_back("model.layers.2.mlp.up_proj.weight", at::ones({2}));
  write_weights(folder, more);
  EXPECT_THAT(load_failure(folder),
              AllOf(HasSubstr("model.safetensors: tensor model.layers.2.mlp.up_proj.weight"),
                    HasSubstr("does not belong to LlamaForCausalLM")));
  Named misshapen = all;
  misshapen[0].second = at::ones({199, 31});
  write_weights(folder, misshapen);
  EXPECT_THAT(load_failure(folder), HasSubstr("tensor lm_head.weight has shape [199, 31], "
                                              "config.json asks for [199, 32]"));
}

TEST_F(ModelFilesTest, NanWeightAndIntegerWeightAreNamed) {
  const std::string folder = copy_golden("qwen3");
  Named tensors = read_all(folder);
  tensors[3].second.view({-1})[5] = std::numeric_limits<float>::quiet_NaN();
  write_weights(folder, tensors);
  EXPECT_THAT(load_failure(folder),
              HasSubstr(cat("model.safetensors: tensor ", tensors[3].first, " holds NaN")));
}

TEST_F(ModelFilesTest, TruncatedWeightsAndUnknownArchitectureAreErrors) {
  const std::string folder = copy_golden("llama");
  const std::string config = bytes(folder, "config.json");
  const std::string weights = bytes(folder, "model.safetensors");
  const std::string weights_path = join_path(folder, "model.safetensors");
  ASSERT_TRUE(write_file_atomic(weights_path, weights.substr(0, weights.size() - 1)).ok());
  EXPECT_THAT(load_failure(folder), HasSubstr("truncated"));
  std::string other = config;
  other.replace(other.find("LlamaForCausalLM"), 16, "MambaForCausalLM");
  ASSERT_TRUE(write_file_atomic(join_path(folder, "config.json"), other).ok());
  EXPECT_THAT(load_failure(folder), HasSubstr("unknown architecture 'MambaForCausalLM'"));
}

TEST_F(ModelFilesTest, FolderWithoutWeightsOrConfigIsNotFound) {
  EXPECT_EQ(load_model(folder_, {}).status().code(), Code::kNotFound);
  const std::string config = bytes(golden_folder("llama"), "config.json");
  ASSERT_TRUE(write_file_atomic(join_path(folder_, "config.json"), config).ok());
  const Status status = load_model(folder_, {}).status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("model.safetensors.index.json"));
}

// Splits model.safetensors in two shards with an index, and returns the index.
Json shard(const std::string& folder, const Named& tensors) {
  Json index = {{"metadata", Json::object()}, {"weight_map", Json::object()}};
  const size_t half = tensors.size() / 2;
  const Named parts[] = {{tensors.begin(), tensors.begin() + static_cast<int64_t>(half)},
                         {tensors.begin() + static_cast<int64_t>(half), tensors.end()}};
  for (int part = 0; part < 2; ++part) {
    const std::string name = cat("model-0000", part + 1, "-of-00002.safetensors");
    EXPECT_TRUE(write_safetensors(join_path(folder, name), parts[part]).ok());
    for (const auto& item : parts[part]) index["weight_map"][item.first] = name;
  }
  std::filesystem::remove(join_path(folder, "model.safetensors"));
  return index;
}

TEST_F(ModelFilesTest, ShardsLoadAsTheWholeAndTheIndexIsChecked) {
  const std::string folder = copy_golden("llama");
  const at::Tensor expected = hidden(*load(folder));
  Json index = shard(folder, read_all(folder));
  const std::string path = join_path(folder, "model.safetensors.index.json");
  ASSERT_TRUE(write_file_atomic(path, index.dump()).ok());
  EXPECT_TRUE(hidden(*load(folder)).equal(expected));
  index["weight_map"].erase("model.norm.weight");
  ASSERT_TRUE(write_file_atomic(path, index.dump()).ok());
  EXPECT_THAT(load_failure(folder), HasSubstr("tensor model.norm.weight is not in"));
  index["weight_map"]["model.norm.weight"] = "model-00001-of-00002.safetensors";
  ASSERT_TRUE(write_file_atomic(path, index.dump()).ok());
  EXPECT_THAT(load_failure(folder), HasSubstr("tensor model.norm.weight is missing"));
  index["weight_map"]["model.norm.weight"] = "../model.safetensors";
  ASSERT_TRUE(write_file_atomic(path, index.dump()).ok());
  EXPECT_THAT(load_failure(folder), HasSubstr("must be a file of the same folder"));
}

TEST_F(ModelFilesTest, NamesWithoutPrefixAndOldBuffersAreAccepted) {
  const std::string folder = copy_golden("gpt2");
  const at::Tensor expected = hidden(*load(folder));
  Named bare;
  for (const auto& item : read_all(folder))
    bare.emplace_back(item.first.substr(std::strlen("transformer.")), item.second);
  bare.emplace_back("h.0.attn.bias", at::ones({1, 1, 4, 4}));
  write_weights(folder, bare);
  EXPECT_TRUE(hidden(*load(folder)).equal(expected));
}

class ExportTest : public ModelFilesTest, public testing::WithParamInterface<const char*> {};

TEST_P(ExportTest, UntouchedModelKeepsEveryByteOfItsTensorsAndFiles) {
  const std::string source = copy_golden(GetParam()), target = join_path(folder_, "out/model");
  ASSERT_TRUE(make_folder(join_path(folder_, "out")).ok());
  for (const char* name : {"tokenizer.json", "chat_template.jinja"})
    ASSERT_TRUE(write_file_atomic(join_path(source, name), cat(name, "\r\n\xc3\xa9")).ok());
  const Status saved = save_model(*load(source), target, {.source_folder = source});
  ASSERT_TRUE(saved.ok()) << saved.message();
  for (const char* name : {"config.json", "tokenizer.json", "chat_template.jinja"})
    EXPECT_EQ(bytes(target, name), bytes(source, name));
  const Named before = read_all(source), after = read_all(target);
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(after[i].first, before[i].first);
    EXPECT_EQ(after[i].second.scalar_type(), before[i].second.scalar_type());
    EXPECT_TRUE(after[i].second.equal(before[i].second)) << before[i].first;
  }
  EXPECT_EQ(list_folder(join_path(folder_, "out"))->size(), 1u);  // no temporary left
}

INSTANTIATE_TEST_SUITE_P(Families, ExportTest,
                         testing::Values("llama", "llama3", "qwen2", "qwen3", "mistral", "gemma",
                                         "gemma2", "gemma3", "phi3", "phi3-long", "qwen2-mixed",
                                         "gpt2", "llama-score", "gpt2-score"));

TEST_F(ModelFilesTest, CriticOfLanguageModelExportsAsSequenceClassifier) {
  const std::string source = golden_folder("llama"), target = join_path(folder_, "critic");
  const auto critic = load(source, {.model = {}, .scalar_head = true});
  ASSERT_TRUE(save_model(*critic, target, {.source_folder = source}).ok());
  const auto again = load(target);
  EXPECT_TRUE(again->spec().scalar_head);
  EXPECT_EQ(again->spec().architecture, "LlamaForSequenceClassification");
  EXPECT_TRUE(hidden(*again).equal(hidden(*critic)));
}

// A policy whose trunk is the critic's too: an export keeps both heads, and is a language model to
// whoever wants no more.
TEST_F(ModelFilesTest, ValueHeadStandsBesideTheLanguageModels) {
  for (const char* family : {"llama3", "qwen2", "gpt2"}) {
    SCOPED_TRACE(family);
    const at::NoGradGuard no_grad;
    const std::string folder = golden_folder(family), out = join_path(folder_, family);
    LoadOptions both;
    both.value_head = true;
    const auto plain = load_model(folder, {}), model = load_model(folder, both);
    ASSERT_TRUE(model.ok()) << model.status().message();
    const TokenBatch tokens = pack_sequences({{1, 5, 6, 7}, {1, 9}}, at::kCPU);
    const at::Tensor hidden = (*model)->forward(tokens, nullptr);
    EXPECT_TRUE(hidden.equal((*plain)->forward(tokens, nullptr)));
    EXPECT_TRUE(logits(**model, hidden).equal(logits(**plain, hidden)));
    EXPECT_EQ(scalar_outputs(**model, hidden).abs().max().item<float>(), 0);
    EXPECT_EQ((*model)->parameters().size(), (*plain)->parameters().size() + 1);
    (*model)->value_weight().normal_(0, 1);
    (*model)->weights_changed();
    const at::Tensor values = scalar_outputs(**model, hidden);
    const at::Tensor expected = hidden.matmul((*model)->value_weight().squeeze(0));
    EXPECT_LE((values - expected).abs().max().item<float>(), 1e-4);
    ASSERT_TRUE(save_model(**model, out, {.source_folder = folder, .dtype = at::kFloat}).ok());
    const auto again = load_model(out, both), policy = load_model(out, {});
    ASSERT_TRUE(again.ok() && policy.ok()) << again.status().message() << policy.status().message();
    EXPECT_TRUE((*again)->value_weight().equal((*model)->value_weight()));
    EXPECT_TRUE(logits(**policy, hidden).equal(logits(**plain, hidden)));
    EXPECT_EQ((*policy)->parameters().size(), (*plain)->parameters().size());
    const auto copy = copy_model(**model);
    EXPECT_TRUE(copy->value_weight().equal((*model)->value_weight()));
    EXPECT_NE(copy->value_weight().const_data_ptr(), (*model)->value_weight().const_data_ptr());
  }
}

TEST_F(ModelFilesTest, ExportInAnotherDtypeStatesIt) {
  const std::string source = golden_folder("llama"), target = join_path(folder_, "f32");
  ASSERT_TRUE(
      save_model(*load(source), target, {.source_folder = source, .dtype = at::kFloat}).ok());
  EXPECT_EQ(load(target)->spec().dtype, "float32");
  EXPECT_EQ(read_all(target)[0].second.scalar_type(), at::kFloat);
}

TEST_F(ModelFilesTest, AdaptersReloadMergedAndApart) {
  expect_reload("gpt2", {.rank = 3, .alpha = 5, .targets = {"c_attn", "c_proj"}});
}

TEST_F(ModelFilesTest, AdaptersOfEveryMatrixReload) {
  expect_reload("llama", {.rank = 2, .targets = {"all-linear", "lm_head"}});
}

TEST_F(ModelFilesTest, ForeignAdapterIsAnErrorThatNamesTheTensor) {
  ModelOptions other;
  other.lora = {.rank = 4, .alpha = 6, .targets = {"q_proj", "k_proj"}};
  const auto model = load(golden_folder("llama"), {.model = other});
  const Status missing = load_adapters(*model, golden_folder("llama-lora"));
  EXPECT_EQ(missing.code(), Code::kInvalidInput);
  EXPECT_THAT(missing.message(), AllOf(HasSubstr("adapter_model.safetensors"),
                                       HasSubstr("k_proj.lora_A.weight is missing")));
  other.lora.targets = {"q_proj"};
  const auto fewer = load(golden_folder("llama"), {.model = other});
  EXPECT_THAT(load_adapters(*fewer, golden_folder("llama-lora")).message(),
              HasSubstr("12 tensors"));
}

TEST_F(ModelFilesTest, ExportNeverReplacesAFolderOfOtherThings) {
  const std::string target = join_path(folder_, "mine");
  ASSERT_TRUE(make_folder(target).ok());
  ASSERT_TRUE(write_file_atomic(join_path(target, "thesis.txt"), "x").ok());
  const auto model = load(golden_folder("llama"));
  const ExportOptions options = {.source_folder = golden_folder("llama")};
  EXPECT_EQ(save_model(*model, target, options).code(), Code::kInvalidInput);
  EXPECT_EQ(bytes(target, "thesis.txt"), "x");
  const std::string fresh = join_path(folder_, "fresh");
  EXPECT_FALSE(save_model(*model, fresh, {.source_folder = folder_}).ok());
  EXPECT_EQ(*list_folder(folder_), std::vector<std::string>{"mine"});
  EXPECT_TRUE(save_model(*model, fresh, options).ok());
  EXPECT_TRUE(save_model(*model, fresh, options).ok());  // an earlier export is replaced
}

}  // namespace
}  // namespace braid::inline nn
