// Characters per second of encoding and tokens per second of decoding, on one thread, for the small
// tokenizers of tests/data/tokenizer. The text repeats words as prose does and mixes in words that
// no cache has seen. Run from the root of the repository.
#include <benchmark/benchmark.h>

#include <random>

#include "base/json.h"
#include "data/tokenizer/tokenizer.h"
#include "host/file.h"

namespace braid {
namespace {

constexpr int kTextCharacters = 1 << 20;
constexpr int kSeed = 7;

const std::vector<std::string>& styles() {
  static const std::vector<std::string> names = {"gpt2",    "llama3", "qwen2",
                                                 "mistral", "llama2", "gemma"};
  return names;
}

std::string random_word(std::mt19937* generator) {
  std::string word;
  const int length = 2 + (*generator)() % 9;
  for (int i = 0; i < length; ++i) word += static_cast<char>('a' + (*generator)() % 26);
  return word;
}

// ASCII, so that characters are bytes: half of the words from a list of 2 000, half new.
std::string mixed_text() {
  std::mt19937 generator(kSeed);
  std::vector<std::string> known;
  for (int i = 0; i < 2000; ++i) known.push_back(random_word(&generator));
  std::string text;
  while (text.size() < kTextCharacters) {
    text += generator() % 2 == 0 ? known[generator() % known.size()] : random_word(&generator);
    text += generator() % 12 == 0 ? ".\n" : " ";
  }
  return text;
}

Tokenizer load(benchmark::State& state) {
  const std::string& style = styles()[state.range(0)];
  state.SetLabel(style);
  const auto tokenizer = load_tokenizer("tests/data/tokenizer/" + style + ".json");
  BRAID_CHECK(tokenizer.ok(), tokenizer.status().message());
  return *tokenizer;
}

void encode_text(benchmark::State& state) {
  const Tokenizer tokenizer = load(state);
  const std::string text = mixed_text();
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer.encode(text, false));
  state.counters["characters/s"] = benchmark::Counter(
      static_cast<double>(text.size()), benchmark::Counter::kIsIterationInvariantRate);
}

void decode_ids(benchmark::State& state) {
  const Tokenizer tokenizer = load(state);
  const auto ids = tokenizer.encode(mixed_text(), false);
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer.decode(*ids, false));
  state.counters["tokens/s"] = benchmark::Counter(static_cast<double>(ids->size()),
                                                  benchmark::Counter::kIsIterationInvariantRate);
}

BENCHMARK(encode_text)->DenseRange(0, 5)->Unit(benchmark::kMillisecond);
BENCHMARK(decode_ids)->DenseRange(0, 5)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace braid

BENCHMARK_MAIN();
