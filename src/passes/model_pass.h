// Executes the forwards, backwards and messages of a call's ops (program/op.h) on one rank: what
// enters and leaves this rank's virtual pipeline stages, and in which order. What stands at the
// ends of the model, tokens and losses, is the call's own: PassEnds. Sends run beside what follows;
// receives and computation follow the list. A micro-batch without samples, which fills a schedule
// up, passes nothing: all ranks know it from the partition.
//
// A rank whose memory runs out in an op drops what it holds of the pass and goes on with zeros: it
// sends, receives and sums with the others as its list says, and computes nothing more. What the
// pass gave is then of no use on any rank. Its zeros may say so to the next stages, which then do
// as it does. Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "nn/model.h"
#include "passes/pass_needs.h"
#include "passes/stage_messages.h"
#include "program/listed_transfers.h"
#include "program/op.h"

namespace braid::inline passes {

// What a call makes of its micro-batches.
class PassEnds {
 public:
  virtual ~PassEnds() = default;
  // Whether a micro-batch of the open mini-batch has no samples: then nothing of it is computed or
  // sent, and only what ranks do together in its passes is done.
  virtual bool empty(int32_t micro_batch) const = 0;
  // Called in the passes of such a micro-batch after each unit of the model (nn/model.h) that other
  // ranks compute with, where units are brought.
  virtual void passed_by(int64_t unit) = 0;
  // The tokens of a micro-batch of the open mini-batch.
  virtual Result<TokenBatch> tokens(int32_t micro_batch) = 0;
  // Takes the hidden states after the last layer. Called on the ranks of the last stage.
  virtual Status outputs(int32_t micro_batch, const at::Tensor& hidden_TH) = 0;
  // The loss of outputs(), whose backward comes next.
  virtual Result<at::Tensor> loss(int32_t micro_batch) = 0;
  // Rows of a micro-batch that a head of a language model takes in outputs(); none where it does
  // not. REQUIRES: tokens() was called.
  virtual std::optional<int64_t> head_rows(int32_t micro_batch) const = 0;
  // Whether the forward of a micro-batch reads and writes caches: nothing trains then. An entry for
  // each layer of the model here.
  virtual bool cached(int32_t /*micro_batch*/) const { return false; }
  virtual const std::vector<KvLayer>& caches(int32_t micro_batch);
  // Memory has run out: what is held of the micro-batches goes.
  virtual void drop() = 0;
};

class ModelPass {
 public:
  // `everyone` carries the messages between stages; null for one stage. `weights`: the ranks that
  // bring weights together, or null. REQUIRES: all outlive this.
  ModelPass(Model& model, Communicator* everyone, Communicator* weights)
      : model_(model), stages_(everyone), weights_(weights) {}

  // From here on what forwards and backwards take is measured, in so many tokens of a micro-batch.
  // REQUIRES: `needs` outlives this.
  void measure(PassNeeds& needs, std::function<int64_t(int32_t micro_batch)> tokens);

  // Another call's passes come between these: messages between stages travel apart from its own.
  void run_beside_another() { stages_.run_beside_another(); }

  // Activations of a rank that gives up say so, and a rank that receives such ones gives up too.
  void tell_shortage() { tells_ = true; }

  // What run() takes: forwards, backwards, losses, sends and receives.
  static bool runs(OpKind kind);
  // Runs one op. With gradients iff the op's body trains.
  Status run(const Op& op, const OpBody& body, PassEnds& ends);
  // Memory has run out between two ops: from here on as after one in which it did.
  void give_up(PassEnds& ends, const std::string& why);
  // Waits for what is still under way. REQUIRES: every forward had its backward, if it trains.
  Status finish();
  // Of the micro-batch of an op that was run; none where it has no samples.
  OpRows rows(const Op& op) const;
  // Why memory ran out in one of the ops; "" = it did not, on this rank.
  const std::string& ran_out() const { return ran_out_; }
  // Whether it has, here or in an earlier stage that said so.
  bool gave_up() const { return gave_up_; }
  const HeldByPasses& held() const { return held_; }

 private:
  // A micro-batch on its way: what came in, what went out, and the gradient of that.
  struct Passage {
    at::Tensor in, out, out_gradient;
  };

  using Place = std::pair<int32_t, int32_t>;  // micro-batch, body
  static Place place(const Op& op) { return {op.micro_batch, op.body}; }

  Status execute(const Op& op, const OpBody& body, PassEnds& ends);
  Status execute_measured(const Op& op, const OpBody& body, PassEnds& ends);
  Status pass_by(const Op& op, PassEnds& ends);
  std::vector<Communicator*> groups_inside() const;
  Status stand_in(const Op& op, const OpBody& body, PassEnds& ends);
  // Of hidden states that this rank sends or receives of so many.
  int64_t rows_between_stages(int64_t rows, const OpBody& body, bool cached) const;
  // Of these caches, of all layers here, those of one range.
  std::vector<KvLayer> caches_of(int32_t range, const std::vector<KvLayer>& all) const;
  Status forward(const Op& op, const OpBody& body, PassEnds& ends);
  Status backward(const Op& op, const OpBody& body);
  Status receive(const Op& op, const OpBody& body, PassEnds& ends);
  Status send(const Op& op, const OpBody& body);

  Model& model_;
  StageMessages stages_;
  Communicator* weights_;
  HeldByPasses held_;
  PassNeeds* needs_ = nullptr;
  std::function<int64_t(int32_t)> tokens_;
  bool tells_ = false, gave_up_ = false;
  std::string ran_out_;
  std::map<int32_t, OpRows> rows_;  // by micro-batch
  std::map<Place, Passage> passages_;
  std::map<int32_t, at::Tensor> losses_;  // by micro-batch
};

}  // namespace braid::inline passes
