// The generation engine: continuous batching over a paged KV cache. submit() queues requests,
// round() runs one forward for a mixed batch of prefills and decodes and samples one token per
// sequence that is due, settle() makes it count. Not thread-safe. A sequence's tokens and log-probs
// are a function of (weights, prompt, seed, sample id) alone, whatever else is batched, preempted
// or admitted (blueprint §7).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "batching/sampling_messages.h"
#include "nn/model.h"

namespace braid::inline rollout {

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
  SamplingNeeds sampling = {};               // of the tokens that are due
};

struct DrawnTokens {
  std::vector<SampledToken> tokens;
  int64_t gathered_rows = 0;  // of logits that ranks of a vocabulary had to gather (shared_draw.h)
  bool ran_out = false;       // of memory, on one of those ranks: there are no tokens
};

// Draws the tokens that are due in a batch from its hidden states after the last layer. Where
// memory runs out in it, or before it on a rank that has a part of the vocabulary, once more
// without hidden states: then it does with the other ranks what they still wait for, and tells them
// so. Errors: also that they cannot be told any more.
using DrawTokens = std::function<Result<DrawnTokens>(const at::Tensor& hidden)>;

struct EngineRound {
  std::vector<SampledToken> drawn;
  bool ran_out = false;  // of memory, on some rank: then what was drawn does not count
  std::string why;       // where that was on this rank; else ""
};

// The ranks that hold the model together, where one does not hold all of it. Each has an engine;
// they are given the same requests and stay alike.
class EngineRanks {
 public:
  virtual ~EngineRanks() = default;
  // A forward of the batch, of which so many tokens are due: its last ranks draw them and tell the
  // others. A rank that lacks memory for it marks what it sends, so that all know. `kv` has an
  // entry for each layer of the model.
  virtual Result<EngineRound> round(Model& model, const EngineBatch& batch,
                                    const std::vector<KvLayer>& kv, int64_t due,
                                    const DrawTokens& draw) = 0;
  // After a round, before it counts: where an agreement is due the ranks agree that they have drawn
  // alike, and whether memory ran out where they had no token to tell it with.
  virtual Status agree(EngineRound* round) = 0;
  // Whether it is so on any of them, all of which ask.
  virtual Result<bool> any(bool here, const std::string& what) = 0;
  // Whether this rank says in the log what all of them do.
  virtual bool leads() const = 0;
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
  int64_t cuts = 0;        // how often it went on with less, for lack of memory
};

// Decides whether text or tokens so far end the sequence (stop strings); called after each token.
using StopCheck = std::function<bool(const Generated&)>;

class Engine {
 public:
  // The model must outlive the engine and hold all layers, or some of them beside options.ranks.
  static Result<std::unique_ptr<Engine>> create(Model& model, const EngineOptions& options);
  virtual ~Engine() = default;

  // Queues a request. Errors: the id of a sample that is in the engine, an empty prompt, an id
  // outside of the vocabulary, sampling options without meaning, and a length that can never fit
  // the model or the budget (names the key to raise).
  virtual Status submit(Request request) = 0;
  virtual void set_stop_check(StopCheck check) = 0;

  // One scheduling round and forward; nothing has advanced. When the model gives no finite logits
  // for a sequence, the error names it. REQUIRES: the round before was settled; until this one is,
  // sequences neither leave nor come with a cache.
  virtual Status round() = 0;
  // What round() drew counts, on all ranks that hold the model together. Returns the sequences that
  // finished with it. Where memory ran out nothing advances, and later rounds compute fewer tokens;
  // so on all those ranks, if device/tensor_memory.h knows what is free. kOutOfMemory: it is not
  // there for one token, or for the cache of one sequence.
  virtual Result<std::vector<Generated>> settle() = 0;
  // Both.
  Result<std::vector<Generated>> step();
  virtual bool drained() const = 0;

  // Allocates the cache that the requests may need, which round() does else, or as much of it as
  // there is memory for; and the bytes of all of it.
  virtual Status make_room() = 0;
  virtual int64_t cache_bytes() const = 0;
  // Where memory ran out on this rank, the last time; "": it did not.
  virtual const std::string& shortage() const = 0;

  // New tokens of an unfinished sequence so far; none where it is not in this engine.
  std::optional<int64_t> produced(SampleId sample) const;
  // These tokens; null where it is not in this engine. Until the next round.
  virtual const std::vector<int32_t>* drawn(SampleId sample) const = 0;
  // An unfinished sequence with its cache, for migration to another engine; it leaves this one.
  struct Exported {
    Request request;
    Generated progress;
    std::vector<KvLayer> kv;  // keys and values [tokens, K, D] per layer; empty if it was waiting
  };
  // `from`: its cache from this token on, where that went ahead of it.
  virtual Result<Exported> export_sequence(SampleId sample, int64_t from = 0) = 0;
  // Tokens in the cache of an unfinished sequence; 0 where it has none or is not in this engine.
  // And a copy of the first so many of them; empty where there are fewer.
  virtual int64_t cached(SampleId sample) const = 0;
  virtual std::vector<KvLayer> copy_cache(SampleId sample, int64_t tokens) const = 0;
  // The same without its cache.
  virtual Result<Exported> take_out(SampleId sample) = 0;
  // Continues an exported sequence; where its cache finds no room it is computed again. Errors as
  // submit, and a cache whose shape is not this model's.
  virtual Status import_sequence(Exported exported) = 0;

  virtual const EngineStats& stats() const = 0;
};

}  // namespace braid::inline rollout
