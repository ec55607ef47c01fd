// The generation engine: continuous batching over a paged KV cache. submit() queues requests,
// step() runs one forward for a mixed batch of prefills and decodes and samples one token per
// sequence that is due. Not thread-safe. A sequence's tokens and log-probs are a function of
// (weights, prompt, seed, sample id) alone, whatever else is batched, preempted or admitted
// (blueprint §7).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "nn/model.h"

namespace braid {

// The distribution that tokens are drawn from; the same values serve scoring (temperature).
struct SamplingOptions {
  double temperature = 1;         // 0 = greedy; log-probs are then those of temperature 1
  int64_t top_k = 0;              // 0 = off
  double top_p = 1;               // 1 = off (Holtzman et al., 2020)
  double min_p = 0;               // 0 = off
  double repetition_penalty = 1;  // 1 = off (Keskar et al., 2019)
  int64_t min_new_tokens = 0;     // stop tokens are masked before
  int64_t max_new_tokens = 128;
  bool ignore_eos = false;  // stop tokens are drawn like others and do not end the sequence
  std::vector<int32_t> stop_tokens;  // end of sequence ids and the user's
  uint64_t seed = 0;
};

enum class Finish { kRunning, kStop, kLength };

struct Request {
  SampleId sample;  // keys the random numbers
  std::vector<int32_t> prompt_ids;
  SamplingOptions sampling;
  int64_t expected_tokens = 0;  // for longest-expected-first admission; 0 = unknown
};

struct Generated {
  SampleId sample;
  std::vector<int32_t> prompt_ids;
  std::vector<int32_t> response_ids;  // with the stop token that ended it
  std::vector<float> logprobs;        // under the distribution that was sampled from
  Finish finish = Finish::kRunning;
};

struct SampledToken {
  int32_t token = 0;
  float logprob = 0;  // under the distribution that was sampled from
};

// What one forward of an engine computes.
struct EngineBatch {
  TokenBatch tokens;
  int64_t prefill_tokens = 0, decoding = 0;  // of prompts, and sequences that compute one token
};

// The ranks that hold the model together, where one does not hold all of it. Each has an engine;
// they are given the same requests and stay alike.
class EngineRanks {
 public:
  virtual ~EngineRanks() = default;
  // Hidden states after the last layer, on the ranks that have it; undefined on the others.
  // `kv` has an entry for each layer of the model.
  virtual Result<at::Tensor> forward(Model& model, const EngineBatch& batch,
                                     const std::vector<KvLayer>& kv) = 0;
  // Comes after each forward: what its last ranks have drawn reaches all of them. The size is the
  // same everywhere.
  virtual Status share(std::vector<SampledToken>* drawn) = 0;
};

struct EngineOptions {
  // Cache capacity; 0 = enough for max_concurrent of the longest request.
  int64_t kv_budget_tokens = 0;
  int64_t max_concurrent = 256;     // sequences in flight
  int64_t max_batch_tokens = 2048;  // tokens of one forward (prefill chunks fit in it)
  bool longest_first = false;
  EngineRanks* ranks = nullptr;  // null: this rank has all layers. REQUIRES: outlives the engine
};

struct EngineStats {
  int64_t steps = 0, prefill_tokens = 0, decode_tokens = 0, preemptions = 0,
          shared_prompt_tokens = 0;
  int64_t peak_concurrent = 0, peak_pages = 0;
  int64_t held_pages = 0;  // of sequences in flight; 0 once the engine is drained
};

// Decides whether text or tokens so far end the sequence (stop strings); called after each token.
using StopCheck = std::function<bool(const Generated&)>;

class Engine {
 public:
  // The model must outlive the engine and hold all layers, or a range of them beside options.ranks.
  static Result<std::unique_ptr<Engine>> create(Model& model, const EngineOptions& options);
  virtual ~Engine() = default;

  // Queues a request. Errors: the id of a sample that is in the engine, an empty prompt, an id
  // outside of the vocabulary, sampling options without meaning, and a length that can never fit
  // the model or the budget (names the key to raise).
  virtual Status submit(Request request) = 0;
  virtual void set_stop_check(StopCheck check) = 0;

  // One scheduling round and forward. Returns the sequences that finished in it. When the model
  // gives no finite logits for a sequence, the error names it and no sequence has advanced.
  virtual Result<std::vector<Generated>> step() = 0;
  virtual bool drained() const = 0;

  // Allocates the cache that the requests may need, which step() does else, and its bytes.
  virtual void make_room() = 0;
  virtual int64_t cache_bytes() const = 0;

  // An unfinished sequence with its cache, for migration to another engine; it leaves this one.
  struct Exported {
    Request request;
    Generated progress;
    std::vector<KvLayer> kv;  // keys and values [tokens, K, D] per layer; empty if it was waiting
  };
  virtual Result<Exported> export_sequence(SampleId sample) = 0;
  // Continues an exported sequence; where its cache finds no room it is computed again. Errors as
  // submit, and a cache whose shape is not this model's.
  virtual Status import_sequence(Exported exported) = 0;

  virtual const EngineStats& stats() const = 0;
};

}  // namespace braid
