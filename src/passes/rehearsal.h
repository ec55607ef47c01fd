// The most that a step can take, done once before the first one: for each call the longest
// micro-batch that may occur (of a pipeline all those of a mini-batch), forward and backward, and
// the whole KV cache with a round of generation over it,
// and room for what an update takes; all beside the copies that frozen roles will get. It executes
// the program's list with samples of its own, two calls whose passes are fused one after the other,
// as a step does where memory is short, and changes nothing that lasts: weights, optimizers,
// positions and random numbers are as before, gradients are zero. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "interpret/interpreter.h"
#include "passes/call_work.h"
#include "passes/generation.h"
#include "samples/call_rows.h"

namespace braid::inline passes {

// What did not fit on this rank.
struct Shortage {
  std::string place;   // "call update_actor, its longest micro-batch, 4096 tokens"; "" = all fitted
  std::string detail;  // what the library said
};

class Rehearsal : public Executor {
 public:
  // `everyone`: all ranks of the job, or null for one. `needs` learns what passes take. REQUIRES:
  // all outlive this; the configuration's device is there.
  Rehearsal(const Config& config, const Program& program, RankModels& models,
            Communicator* everyone, NeedsOfCalls& needs);

  // All ranks of the job together. Errors are those of a step; a rank that runs out of memory where
  // it cannot go on beside the others throws as a step does.
  Status run();

  // The first thing that did not fit on this rank.
  const Shortage& shortage() const { return shortage_; }
  // What it was doing when an exception ended it, in the form of a shortage's place.
  const std::string& at() const { return at_; }
  // Most bytes that passes have held beside what was there before.
  int64_t activation_bytes() const { return activation_bytes_; }
  // Bytes of the KV cache of this rank, whether or not it fitted.
  int64_t cache_bytes() const { return cache_bytes_; }

  // Every rank makes its samples up: nothing of them moves, and nothing is agreed on.
  Status execute(const Instruction& instruction) override;
  // State from the host alone passes beside another call, whose memory is measured.
  Status begin_ahead(const Instruction& instruction) override;
  Status wait_for(const Instruction& instruction) override;
  bool region_done(const Instruction&) const override { return true; }
  Status reopen(const Instruction&) override { return ok_status(); }
  void passed(size_t) override {}

 private:
  CallId id_of(const Call& call) const {
    return CallId{static_cast<int32_t>(&call - program_.graph.calls.data())};
  }
  Status run_call(const Call& call);
  Status begin_region(const Call& call);
  Status round(const Call& call);
  Status open_training(const Call& call);
  Status run_passes(const Call& call);
  Status run_fused(const FusedCalls& fused);
  bool is_fused(CallId call) const;
  Status update(const Call& call);
  Status reallocate(int32_t entry);
  int64_t rank() const { return everyone_ == nullptr ? 0 : everyone_->index(); }
  Result<int64_t> longest_prompt() const;
  Status begin_samples();
  Status put_fields(FieldShape shape, int64_t numbers);
  Status put_responses(int64_t tokens);
  Status partition_longest(const Call& call);
  at::Tensor take(int64_t bytes);
  std::string micro_batch_text() const;
  void note_shortage(const std::string& detail);
  Status note_generation(const Status& status);

  const Config& config_;
  const RolloutConfig rollout_;  // without what needs a tokenizer
  const Program& program_;
  RankModels& models_;
  Communicator* const everyone_;
  const at::Device device_;
  SampleStore store_;
  CallRows rows_;
  CallWork work_;
  Metrics metrics_;
  SampleLedger ledger_;
  TrainedSoFar trained_;
  Generation generation_;
  Inference inference_;
  Training training_;
  int64_t prompt_tokens_ = 1;
  Partition partition_;  // of the open call
  Shortage shortage_;
  std::string at_;
  int64_t activation_bytes_ = 0, cache_bytes_ = 0;
};

}  // namespace braid::inline passes
