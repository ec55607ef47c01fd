// How long a search of the command line may run: its options and their check. Stateless.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "optimize/limits.h"

namespace braid {

using optimize::SearchLimits, optimize::Stopwatch, optimize::unit_options;

// Errors: a time limit that is no positive number, less than one unit, threads outside 0 to 1024.
Status check_limits(const SearchLimits& limits);

// Adds --time-limit, --max-units, --seed and --threads to a command. The targets must outlive
// `app`.
void define_search_options(CLI::App& app, SearchLimits& limits, uint64_t& seed);

// For options: CLI11 would take -1 for the largest number there is.
std::string not_negative(const std::string& text);

}  // namespace braid
