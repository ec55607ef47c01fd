// What a program lists, as the communicators of a rank count it. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/transfer_count.h"
#include "program/listed_messages.h"

namespace braid::inline samples {

// How communicators name the transfer of an op. REQUIRES: the op is one.
Transfer transfer_of(OpKind kind);

// Adds messages of a rank on a channel of the group of all ranks.
void add_listed(const std::vector<ListedMessage>& messages, int32_t channel,
                TransferCounts* counts);

}  // namespace braid::inline samples
