// What verify() checks of the fields of samples that lists move. Pure.
#pragma once

#include "program/program.h"

namespace braid::inline program {

// Exchanges and shares bring fields that their calls write, among the ranks of their calls, and
// every call gets what it reads of others by one.
Status verify_exchange_table(const Program& program);

// One list: who gives fields away has made them, and a call starts when all that it reads has come
// to this rank, by exchanges that it waits for and shares before it. REQUIRES: a program of a plan.
Status verify_fields(const Program& program, size_t rank);

}  // namespace braid::inline program
