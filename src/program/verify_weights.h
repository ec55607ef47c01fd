// What verify() checks of the weights that lists move. Pure.
#pragma once

#include <optional>

#include "program/program.h"

namespace braid::inline program {

// Every entry of the table is brought by messages of its members that together make its copy whole:
// who sends has what it sends, or has got it before, and every receiver gets what it lacks once. Of
// all ranks, or of what one sends and receives.
Status verify_reallocation_table(const Program& program, std::optional<DeviceId> only = {});

// One list: a call's copy has been filled since its weights changed, and the call waits for that;
// weights change or leave the device when all that is read from them has been sent. A copy that is
// filled beside training is there at the begin, and again at the end.
Status verify_copies(const Program& program, size_t rank);

}  // namespace braid::inline program
