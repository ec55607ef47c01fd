// The generation of one rank: which samples it draws now and what they have become. begin(), then
// round() and settle() until drained(), then finish(). In between it may be handed over: what has
// finished is written, and samples go to ranks of other replicas or come from them. Its state lives
// from begin() to finish(); the responses of a recorded rollout come through the same door. Not
// thread-safe.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/options.h"
#include "data/tokenizer/tokenizer.h"
#include "program/hand_over.h"
#include "rollout/engine.h"
#include "samples/rollout_file.h"
#include "samples/sample_store.h"

namespace braid::inline passes {

class Generation {
 public:
  // REQUIRES: what the references and the tokenizer (or null) point to outlives this.
  Generation(const RolloutConfig& options, int64_t seed, const Tokenizer* tokenizer)
      : options_(options), seed_(seed), tokenizer_(tokenizer) {}

  // Submits the prompts of these rows, or takes their responses in step `step` from
  // rollout.replay. A call whose function is greedy takes the likeliest token each time, once for
  // the rows of a group. Where it is `predicted` how many new tokens each row of the store will
  // get, the longest are admitted first. `ranks` is null where this rank has the whole model, else
  // it has a part. REQUIRES: the model and the call outlive finish().
  Status begin(const Call& call, Model& model, std::unique_ptr<EngineRanks> ranks,
               const SampleStore& store, const Rows& rows, int64_t step,
               std::vector<int64_t> predicted = {});

  // The next begin() goes on with these samples, by their ids, instead of beginning them: earlier
  // weights drew tokens of them, whose keys and values are computed anew. REQUIRES: they are rows
  // that it is given.
  void go_on_with(std::map<int64_t, Generated> progress) { earlier_ = std::move(progress); }

  // One scheduling round and forward; what it drew counts after settle(), which executes the ops of
  // an agreement. Nothing once drained, as under rollout.replay.
  Status round();
  Status settle();
  // Allocates the cache at the size that the requests may need, before rounds do.
  Status make_room();
  // How often the open generation went on with less for lack of memory, and where that was last on
  // this rank ("": nowhere).
  int64_t cuts() const { return engine_ ? engine_->stats().cuts : 0; }
  std::string shortage() const { return engine_ ? engine_->shortage() : std::string(); }
  // Bytes of that cache on this rank.
  int64_t cache_bytes() const { return engine_ ? engine_->cache_bytes() : 0; }
  // Frees what an open generation holds, as after a failure.
  void abandon();
  bool drained() const { return !engine_ || engine_->drained(); }

  // Of the rows that are not written yet: how many have not finished, and how far each is, without
  // its prompt.
  int64_t left(const SampleStore& store) const;
  SampleProgress progress(const SampleStore& store, size_t row) const;
  // The tokens so far of a row that has not finished.
  const std::vector<int32_t>& drawn(const SampleStore& store, size_t row) const;
  // Writes what the call says of these rows, which have finished: their tokens, whether they were
  // cut and, where it wants them, the sampler's log-probs.
  Status write(SampleStore& store, const Rows& rows);
  // A row that has not finished, with its cache from a token on, leaves this rank.
  Result<Engine::Exported> give(const SampleStore& store, size_t row, int64_t from = 0);
  // Tokens in the cache of a row, 0 of one that has finished; and a copy of the first so many of
  // them, while it goes on: empty where there are fewer.
  int64_t cached(const SampleStore& store, size_t row) const;
  std::vector<KvLayer> copy_cache(const SampleStore& store, size_t row, int64_t tokens) const;
  // One comes. `progress` has the sample's id, prompt, tokens and log-probs so far, `kv` its cache.
  Status take(const SampleStore& store, size_t row, Generated progress, std::vector<KvLayer> kv);
  // Room for the cache of so many tokens of one sequence on this rank: keys and values by layer.
  std::vector<KvLayer> room_for(int64_t tokens) const;

  // The samples of some rows, which are not written, leave as far as they are; by their ids.
  Result<std::map<int64_t, Generated>> leave(const SampleStore& store, const Rows& rows);

  // Writes all rows that are not written; the model rests.
  // REQUIRES: they have finished.
  Status finish(SampleStore& store);

  // What the file says about the samples of this step, by sample id, of the call that writes the
  // field `responses`; empty without rollout.replay.
  const std::map<int64_t, RolloutRow>& replayed(const std::string& responses) {
    return replayed_[responses];
  }

 private:
  Status replay(const SampleStore& store, int64_t step);
  SamplingOptions sampling(const Model& model) const;
  int64_t predicted(size_t row) const { return predicted_.empty() ? 0 : predicted_[row]; }
  Status submit(const SampleStore& store);
  // They are no longer this rank's to write.
  void forget(const Rows& rows);
  const Generated* finished(const SampleStore& store, size_t row) const;
  // The sample whose response a row has: its own, or the first of its group on this rank.
  int64_t drawn_for(const SampleStore& store, size_t row) const;

  const RolloutConfig& options_;
  int64_t seed_;
  const Tokenizer* tokenizer_;
  std::vector<int64_t> predicted_;  // new tokens of each row of the store; empty: nobody has said
  std::optional<RolloutReplay> file_;
  std::map<std::string, std::map<int64_t, RolloutRow>> replayed_;  // by field of responses

  const Call* call_ = nullptr;
  std::string responses_;  // the field of the call
  bool greedy_ = false;
  std::map<int64_t, int64_t> first_;  // by group, where the call is greedy: a sample
  Model* model_ = nullptr;            // of the open generation
  Rows rows_;
  std::unique_ptr<EngineRanks> ranks_;
  std::unique_ptr<Engine> engine_;         // null under rollout.replay
  std::map<int64_t, Generated> finished_;  // by sample id
  std::map<int64_t, Generated> earlier_;   // of the next begin()
};

}  // namespace braid::inline passes
