// What the ops of a call send, transfer by transfer: what a runtime's communicators count while it
// executes them. Sums of gradients and weights that ranks share travel in buckets
// (models/flat_layout.h), whose sizes follow from the model's tensors. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/spec.h"
#include "program/expand.h"
#include "program/tensor_map.h"

namespace braid::inline program {

// The tensors of a model, in the order of its files.
struct CallTensors {
  enum class Place { kFirst, kLayer, kLast };
  struct Part {  // what of a kind is in a tensor
    TensorKind kind;
    int64_t per_unit = 0;
  };
  struct Tensor {
    Place place = Place::kLayer;
    bool trained = false, adapter = false;
    std::vector<Part> parts;
  };
  std::vector<Tensor> tensors;
  bool tied = false;  // the embedding is the head too
  // Sequence parallelism of the call that the weights were loaded for, which need not be the one
  // that uses them: which gradients are sums over ranks follows it, and with that the buckets.
  bool cuts_rows = false;
};
struct CallAdapters {
  int64_t rank = 0;  // 0: there are none
  std::vector<std::string> targets = {};
};
// `trained`: all of them, or of a model with adapters these and the scalar head.
CallTensors call_tensors(const ModelSpec& spec, bool trained, const CallAdapters& adapters);

// One transfer of an op, or `count` that are alike.
struct ListedTransfer {
  OpKind kind = OpKind::kAllReduce;  // a collective, send or receive
  int32_t group = -1;                // in Expansion::groups; -1: send, receive
  bool weights = false;              // of ranks that share weights, inside of passes (ZeRO-3)
  int64_t count = 1, bytes = 0;      // of each, as TransferKind counts them
};

// Rows of a micro-batch, or of a round.
struct OpRows {
  int64_t tokens = 0;  // that this rank computes
  int64_t head = 0;    // of them, those that the head of a language model takes
  int64_t drawn = 0;   // tokens that a round draws
};

// What an op of `ops` sends; nothing of no bytes, or within a group of one rank. REQUIRES: the
// runtime executes it: no context parallelism, no routed experts.
std::vector<ListedTransfer> transfers_of(const CallFrame& frame, const CallTensors& tensors,
                                         const Expansion& ops, const Op& op, const OpRows& rows);

// Bytes of the all-gathers that bring the weights of a layer together where ranks of a call have
// slices of them (ZeRO-3); of the ends of the model for kEndsOfModel.
std::vector<int64_t> gathers_of_layer(const CallFrame& frame, const CallTensors& tensors,
                                      const Expansion& ops, int64_t layer);

}  // namespace braid::inline program
