// Channels of the group of all ranks: messages between two ranks arrive in the order in which they
// were sent, those of each channel for themselves.
#pragma once

#include <cstdint>

namespace braid::inline comm {

enum RankChannel : int32_t {
  kFieldChannel = 0,
  // Hidden states between stages, then their gradients (program/op.h).
  kPassChannel = 0,
  kTokensChannel = 3,  // of samples that move at a hand-over
  // Their caches, and texts: in a step caches come before, and have all come then.
  kCacheChannel = 4,
  kTextChannel = kCacheChannel,
  kPassBesideChannel = 4,  // of passes beside another call's: as kPassChannel
  kCountChannel = 7,       // how many samples a hand-over has left
  kProgressChannel = 8,    // how far samples are that were handed over
  // Each reallocation has a channel of its own from here on, so that they need no order among
  // ranks.
  kFirstWeightChannel = 9
};

}  // namespace braid::inline comm
