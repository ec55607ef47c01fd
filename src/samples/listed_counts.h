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

// Of the end of a fetch (told_in_fetch()), on each of so many ranks.
TransferCounts listed_of_fetch(const Call& fetch, int64_t prompts, int64_t samples, int64_t ranks);

}  // namespace braid::inline samples
