#include "rollout/engine.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "base/rng.h"
#include "device/tensor_memory.h"

namespace braid::inline rollout {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kVocab = 61;

ModelSpec tiny_spec() {
  ModelSpec spec;
  spec.family = "llama";
  spec.architecture = "LlamaForCausalLM";
  spec.layers = 2;
  spec.hidden = 32;
  spec.intermediate = 64;
  spec.heads = 4;
  spec.kv_heads = 2;
  spec.head_dim = 16;  // which a decode step serves at once
  spec.vocab = kVocab;
  spec.max_positions = 512;
  spec.dtype = "float32";
  return spec;
}

// Weights large enough that the distributions differ clearly from uniform.
std::unique_ptr<Model> tiny_model() {
  at::set_num_threads(2);
  std::unique_ptr<Model> model = std::move(make_model(tiny_spec(), {})).value();
  const at::NoGradGuard no_grad;
  for (auto& [name, tensor] : model->parameters())
    if (tensor.dim() == 2) tensor.mul_(8);
  model->weights_changed();
  return model;
}

std::vector<int32_t> random_ids(int64_t count, uint64_t seed) {
  RandomStream random(seed, 17);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(random.below(kVocab)));
  return ids;
}

Request request_of(int64_t sample, std::vector<int32_t> prompt, int64_t max_new_tokens) {
  Request request;
  request.sample = SampleId{sample};
  request.prompt_ids = std::move(prompt);
  request.sampling.max_new_tokens = max_new_tokens;
  request.sampling.seed = 11;
  return request;
}

// Prompts of very different lengths, with some shared ones, and a few shaped distributions.
std::vector<Request> mixed_requests() {
  const std::vector<int64_t> lengths = {1, 7, 31, 32, 33, 70, 70, 100, 5, 64};
  std::vector<Request> requests;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const uint64_t seed = lengths[i] == 70 ? 70 : i;
    Request request = request_of(static_cast<int64_t>(i), random_ids(lengths[i], seed),
                                 20 + static_cast<int64_t>(i) * 5);
    if (i % 3 == 1) request.sampling.top_p = 0.8;
    if (i % 3 == 2) request.sampling.repetition_penalty = 1.3;
    request.sampling.stop_tokens = {0};
    requests.push_back(std::move(request));
  }
  return requests;
}

struct Outcome {
  std::map<int64_t, Generated> samples;
  std::vector<int64_t> order;  // in which they finished
  EngineStats stats;
};

void drain(Engine& engine, Outcome& outcome) {
  while (!engine.drained()) {
    auto finished = engine.step();
    ASSERT_TRUE(finished.ok()) << finished.status().message();
    for (Generated& sample : *finished) {
      outcome.order.push_back(sample.sample.value);
      outcome.samples[sample.sample.value] = std::move(sample);
    }
  }
  outcome.stats = engine.stats();
  EXPECT_EQ(outcome.stats.held_pages, 0) << "pages leaked";
}

Outcome run(Model& model, const EngineOptions& options, const std::vector<Request>& requests,
            const StopCheck& check = nullptr) {
  Outcome outcome;
  const std::unique_ptr<Engine> engine = std::move(Engine::create(model, options)).value();
  engine->set_stop_check(check);
  for (const Request& request : requests) {
    const Status status = engine->submit(request);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  drain(*engine, outcome);
  return outcome;
}

void expect_same(const Outcome& a, const Outcome& b) {
  ASSERT_EQ(a.samples.size(), b.samples.size());
  for (const auto& [id, sample] : a.samples) {
    const Generated& other = b.samples.at(id);
    EXPECT_EQ(sample.response_ids, other.response_ids) << "sample " << id;
    EXPECT_EQ(sample.logprobs, other.logprobs) << "sample " << id;
    EXPECT_EQ(sample.finish, other.finish) << "sample " << id;
  }
}

class EngineTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { model_ = tiny_model().release(); }
  static void TearDownTestSuite() {
    delete model_;
    model_ = nullptr;
  }
  static Outcome one_by_one(const std::vector<Request>& requests) {
    Outcome all;
    for (const Request& request : requests)
      for (auto& [id, sample] : run(*model_, {}, {request}).samples)
        all.samples[id] = std::move(sample);
    return all;
  }
  static Model* model_;
};
Model* EngineTest::model_ = nullptr;

TEST_F(EngineTest, ResultsDoNotDependOnTheBatch) {
  const std::vector<Request> requests = mixed_requests();
  const Outcome alone = one_by_one(requests);
  const Outcome together = run(*model_, {}, requests);
  EXPECT_GT(together.stats.peak_concurrent, 5);
  expect_same(alone, together);

  EngineOptions pairs;
  pairs.max_concurrent = 2;
  expect_same(alone, run(*model_, pairs, requests));
}

TEST_F(EngineTest, PreemptionChangesNothing) {
  const std::vector<Request> requests = mixed_requests();
  EngineOptions tight;
  tight.kv_budget_tokens = 6 * kPageTokens;
  const Outcome preempted = run(*model_, tight, requests);
  EXPECT_GT(preempted.stats.preemptions, 0);
  EXPECT_LE(preempted.stats.peak_pages, 6);
  expect_same(one_by_one(requests), preempted);
}

TEST_F(EngineTest, ChunkedPrefillChangesNothing) {
  const std::vector<Request> requests = mixed_requests();
  const Outcome whole = run(*model_, {}, requests);
  for (const int64_t batch_tokens : {1, 9, 40}) {
    EngineOptions chunked;
    chunked.max_batch_tokens = batch_tokens;
    const Outcome outcome = run(*model_, chunked, requests);
    EXPECT_GT(outcome.stats.steps, whole.stats.steps);
    expect_same(whole, outcome);
  }
}

// The cache becomes smaller, and rounds do, until they fit; what is drawn stays.
TEST_F(EngineTest, GoesOnWithLessWhereMemoryIsShort) {
  count_tensor_memory();
  const std::vector<Request> requests = mixed_requests();
  Outcome whole;
  int64_t rise = 0;
  {
    model_->rest();  // packs its matrices anew
    const PeakMeter meter(at::kCPU);
    whole = run(*model_, {}, requests);
    rise = meter.most_bytes();
  }
  EXPECT_EQ(whole.stats.cuts, 0);
  for (const int64_t share : {95, 80, 60}) {
    model_->rest();
    set_tensor_memory_limit(tensor_bytes() + rise * share / 100);
    const Outcome cut = run(*model_, {}, requests);
    set_tensor_memory_limit(0);
    EXPECT_GT(cut.stats.cuts, 0) << share;
    expect_same(whole, cut);
  }
}

TEST_F(EngineTest, OneTokenThatFindsNoMemoryIsAnError) {
  count_tensor_memory();
  const auto engine = std::move(Engine::create(*model_, {})).value();
  ASSERT_TRUE(engine->submit(request_of(0, random_ids(40, 1), 20)).ok());
  set_tensor_memory_limit(tensor_bytes() + 4096);
  const auto cache = engine->step();
  set_tensor_memory_limit(0);
  EXPECT_EQ(cache.status().code(), Code::kOutOfMemory);
  EXPECT_THAT(cache.status().message(), HasSubstr("the KV cache of one sequence"));
  ASSERT_TRUE(engine->make_room().ok());
  set_tensor_memory_limit(tensor_bytes() + 1024);
  Status ended;
  for (int round = 0; round < 20 && ended.ok(); ++round) ended = engine->step().status();
  set_tensor_memory_limit(0);
  EXPECT_EQ(ended.code(), Code::kOutOfMemory);
  EXPECT_THAT(ended.message(), HasSubstr("with one token in a round"));
  Outcome outcome;
  drain(*engine, outcome);
  expect_same(outcome, run(*model_, {}, {request_of(0, random_ids(40, 1), 20)}));
}

TEST_F(EngineTest, LogprobsAreThoseOfScoring) {
  const at::NoGradGuard no_grad;
  std::vector<Request> requests;
  for (int64_t i = 0; i < 4; ++i) {
    requests.push_back(request_of(i, random_ids(20 + 13 * i, i), 40));
    requests.back().sampling.temperature = 0.7;
  }
  for (const auto& [id, sample] : run(*model_, {}, requests).samples) {
    std::vector<int32_t> ids = sample.prompt_ids;
    ids.insert(ids.end(), sample.response_ids.begin(), sample.response_ids.end());
    const at::Tensor hidden = model_->forward(pack_sequences({ids}, at::kCPU), nullptr);
    const auto count = static_cast<int64_t>(sample.response_ids.size());
    const auto begin = static_cast<int64_t>(sample.prompt_ids.size()) - 1;
    const at::Tensor targets =
        at::tensor(std::vector<int64_t>(sample.response_ids.begin(), sample.response_ids.end()));
    const at::Tensor scored =
        head_logprobs(*model_, hidden.narrow(0, begin, count), targets, 0.7).logprobs_N;
    for (int64_t i = 0; i < count; ++i)
      EXPECT_NEAR(sample.logprobs[i], scored[i].item<float>(), 1e-5) << "sample " << id;
  }
}

TEST_F(EngineTest, SamplesOfOnePromptShareItsPages) {
  std::vector<Request> requests;
  for (int64_t i = 0; i < 4; ++i) requests.push_back(request_of(i, random_ids(100, 3), 10));
  const Outcome together = run(*model_, {}, requests);
  EXPECT_EQ(together.stats.shared_prompt_tokens, 3 * 3 * kPageTokens);
  EXPECT_LE(together.stats.peak_pages, 3 + 4);
  expect_same(one_by_one(requests), together);
  EXPECT_NE(together.samples.at(0).response_ids, together.samples.at(1).response_ids);

  EngineOptions tight;  // fits only because pages are shared
  tight.kv_budget_tokens = 7 * kPageTokens;
  const Outcome shared = run(*model_, tight, requests);
  EXPECT_EQ(shared.stats.peak_concurrent, 4);
  expect_same(together, shared);
}

TEST_F(EngineTest, LengthLimitsHold) {
  std::vector<Request> requests;
  for (int64_t i = 0; i < 30; ++i) {
    requests.push_back(request_of(i, random_ids(4, i), 25));
    requests.back().sampling.min_new_tokens = 5;
    for (int32_t stop = 0; stop < 20; ++stop) requests.back().sampling.stop_tokens.push_back(stop);
  }
  int stopped = 0;
  for (const auto& [id, sample] : run(*model_, {}, requests).samples) {
    const auto count = static_cast<int64_t>(sample.response_ids.size());
    EXPECT_GE(count, 6);  // the first five may not stop
    for (int64_t i = 0; i + 1 < count; ++i)
      EXPECT_FALSE(sample.response_ids[i] < 20) << "went on after a stop token";
    if (sample.finish == Finish::kStop) {
      EXPECT_LT(sample.response_ids.back(), 20);
      ++stopped;
    } else {
      EXPECT_EQ(count, 25);
    }
    EXPECT_EQ(sample.logprobs.size(), sample.response_ids.size());
  }
  EXPECT_GT(stopped, 0);
}

TEST_F(EngineTest, IgnoredStopTokensDoNotStop) {
  Request request = request_of(0, random_ids(4, 0), 25);
  for (int32_t stop = 0; stop < kVocab; ++stop) request.sampling.stop_tokens.push_back(stop);
  EXPECT_EQ(run(*model_, {}, {request}).samples.at(0).response_ids.size(), 1u);
  request.sampling.ignore_eos = true;
  const Generated sample = run(*model_, {}, {request}).samples.at(0);
  EXPECT_EQ(sample.response_ids.size(), 25u);
  EXPECT_EQ(sample.finish, Finish::kLength);
}

TEST_F(EngineTest, StopCheckEndsASequence) {
  const StopCheck third = [](const Generated& g) { return g.response_ids.size() == 3; };
  const Generated sample =
      run(*model_, {}, {request_of(0, random_ids(4, 0), 25)}, third).samples.at(0);
  EXPECT_EQ(sample.response_ids.size(), 3u);
  EXPECT_EQ(sample.finish, Finish::kStop);
}

TEST_F(EngineTest, ExportedSequencesContinueIdentically) {
  const std::vector<Request> requests = mixed_requests();
  for (const int64_t target_budget : {int64_t{0}, 6 * kPageTokens}) {
    const auto source = std::move(Engine::create(*model_, {})).value();
    EngineOptions options;
    options.kv_budget_tokens = target_budget;
    const auto target = std::move(Engine::create(*model_, options)).value();
    for (const Request& request : requests) ASSERT_TRUE(source->submit(request).ok());
    Outcome outcome;
    for (int i = 0; i < 12; ++i) {
      auto finished = source->step();
      ASSERT_TRUE(finished.ok()) << finished.status().message();
      for (Generated& sample : *finished) outcome.samples[sample.sample.value] = std::move(sample);
    }
    for (const Request& request : requests) {
      if (outcome.samples.count(request.sample.value) > 0) continue;
      auto exported = source->export_sequence(request.sample);
      ASSERT_TRUE(exported.ok()) << exported.status().message();
      ASSERT_TRUE(target->import_sequence(*std::move(exported)).ok());
    }
    EXPECT_TRUE(source->drained());
    EXPECT_EQ(source->stats().held_pages, 0);
    drain(*target, outcome);
    if (target_budget == 0) {
      EXPECT_EQ(target->stats().prefill_tokens, 0) << "the cache was not used";
    }
    expect_same(run(*model_, {}, requests), outcome);
  }
}

// The first tokens of a cache are copied while its sequence goes on, and behind them comes the
// rest.
TEST_F(EngineTest, CachesMayGoAhead) {
  const std::vector<Request> requests = mixed_requests();
  const auto source = std::move(Engine::create(*model_, {})).value();
  const auto target = std::move(Engine::create(*model_, {})).value();
  for (const Request& request : requests) ASSERT_TRUE(source->submit(request).ok());
  Outcome outcome;
  const auto steps = [&](int count) {
    for (int i = 0; i < count; ++i)
      for (Generated& sample : source->step().value())
        outcome.samples[sample.sample.value] = std::move(sample);
  };
  steps(8);
  std::map<int64_t, std::vector<KvLayer>> copies;
  for (const Request& request : requests) {
    const int64_t cached = source->cached(request.sample);
    EXPECT_TRUE(source->copy_cache(request.sample, cached + 1).empty());
    if (cached > 0) copies[request.sample.value] = source->copy_cache(request.sample, cached);
  }
  EXPECT_EQ(source->cached(SampleId{999}), 0);
  steps(5);
  int64_t ahead = 0;
  for (const Request& request : requests) {
    if (outcome.samples.count(request.sample.value) > 0) continue;
    std::vector<KvLayer> kv = copies[request.sample.value];
    const int64_t copied = kv.empty() ? 0 : kv[0].keys.size(0);
    const int64_t cached = source->cached(request.sample);
    Engine::Exported left = source->export_sequence(request.sample, copied).value();
    EXPECT_EQ(left.kv.empty() ? 0 : left.kv[0].keys.size(0), cached - copied);
    for (size_t layer = 0; layer < kv.size() && cached > copied; ++layer)
      left.kv[layer] = {at::cat({kv[layer].keys, left.kv[layer].keys}),
                        at::cat({kv[layer].values, left.kv[layer].values})};
    ahead += copied;
    ASSERT_TRUE(target->import_sequence(std::move(left)).ok());
  }
  EXPECT_GT(ahead, 0);
  drain(*target, outcome);
  EXPECT_EQ(target->stats().prefill_tokens, 0) << "the cache was not used";
  expect_same(run(*model_, {}, requests), outcome);
}

TEST_F(EngineTest, ImportRefusesForeignCaches) {
  const auto engine = std::move(Engine::create(*model_, {})).value();
  ASSERT_TRUE(engine->submit(request_of(5, random_ids(40, 0), 10)).ok());
  ASSERT_TRUE(engine->step().ok());
  Engine::Exported exported = engine->export_sequence(SampleId{5}).value();
  exported.kv.pop_back();
  EXPECT_THAT(engine->import_sequence(exported).message(), HasSubstr("sample 5"));
  EXPECT_THAT(engine->export_sequence(SampleId{5}).status().message(), HasSubstr("sample 5"));
}

TEST_F(EngineTest, SubmitNamesWhatIsWrong) {
  EngineOptions options;
  options.kv_budget_tokens = 2 * kPageTokens;
  const auto engine = std::move(Engine::create(*model_, options)).value();
  const auto message = [&](const Request& request) { return engine->submit(request).message(); };
  EXPECT_THAT(message(request_of(7, {}, 5)), HasSubstr("sample 7: the prompt is empty"));
  EXPECT_THAT(message(request_of(7, {3, 61}, 5)), HasSubstr("token id 61 is outside"));
  EXPECT_THAT(message(request_of(7, {3, -1}, 5)), HasSubstr("token id -1 is outside"));
  EXPECT_THAT(message(request_of(7, {3}, 0)), HasSubstr("max_new_tokens is 0"));
  EXPECT_THAT(message(request_of(7, {3}, 600)), HasSubstr("512 positions"));
  EXPECT_THAT(message(request_of(7, {3}, 100)), HasSubstr("raise rollout.kv_budget_tokens"));
  EXPECT_TRUE(engine->drained());
}

TEST_F(EngineTest, RefusesTheIdOfASampleThatItHolds) {
  const auto engine = std::move(Engine::create(*model_, {})).value();
  ASSERT_TRUE(engine->submit(request_of(3, {1, 2}, 2)).ok());
  EXPECT_THAT(engine->submit(request_of(3, {1, 2}, 2)).message(),
              HasSubstr("sample 3: this engine holds a sample of that id"));
  ASSERT_TRUE(engine->step().ok());  // now it is running
  EXPECT_FALSE(engine->submit(request_of(3, {1, 2}, 2)).ok());
  while (!engine->drained()) ASSERT_TRUE(engine->step().ok());
  EXPECT_TRUE(engine->submit(request_of(3, {1, 2}, 2)).ok());
}

TEST_F(EngineTest, LongestExpectedComesFirst) {
  std::vector<Request> requests;
  for (const int64_t length : {3, 9, 6}) {
    requests.push_back(request_of(length, random_ids(4, length), length));
    requests.back().expected_tokens = length;
  }
  EngineOptions single;
  single.max_concurrent = 1;
  EXPECT_THAT(run(*model_, single, requests).order, ElementsAre(3, 9, 6));
  single.longest_first = true;
  EXPECT_THAT(run(*model_, single, requests).order, ElementsAre(9, 6, 3));
}

TEST(Engine, ANanInTheWeightsIsAnErrorThatNamesTheSample) {
  const std::unique_ptr<Model> model = tiny_model();
  {
    const at::NoGradGuard no_grad;
    model->head_weight().select(0, 3).fill_(std::numeric_limits<float>::quiet_NaN());
  }
  const auto engine = std::move(Engine::create(*model, {})).value();
  ASSERT_TRUE(engine->submit(request_of(8, {1, 2}, 5)).ok());
  for (int attempt = 0; attempt < 2; ++attempt)
    EXPECT_THAT(engine->step().status().message(), HasSubstr("sample 8, new token 0"));
}

TEST(Engine, RefusesModelsThatCannotGenerate) {
  ModelSpec spec = tiny_spec();
  ModelOptions half;
  half.ranges = {{0, 1}};
  const auto part = std::move(make_model(spec, half)).value();
  EXPECT_THAT(Engine::create(*part, {}).status().message(), HasSubstr("layers 0 to 1 of 2"));
  spec.scalar_head = true;
  spec.architecture = "LlamaForSequenceClassification";
  const auto scorer = std::move(make_model(spec, {})).value();
  EXPECT_THAT(Engine::create(*scorer, {}).status().message(), HasSubstr("scalar head"));
  EngineOptions none;
  none.max_concurrent = 0;
  EXPECT_THAT(Engine::create(*tiny_model(), none).status().message(), HasSubstr("max_concurrent"));
}

}  // namespace
}  // namespace braid::inline rollout
