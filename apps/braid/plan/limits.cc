#include "braid/plan/limits.h"

#include <cmath>

namespace braid {

Status check_limits(const SearchLimits& limits) {
  const double stated_s = limits.time_limit_s.value_or(1);
  if (!(stated_s > 0) || !std::isfinite(stated_s))
    return invalid_input("--time-limit must be a positive number of seconds");
  if (limits.max_units < 1) return invalid_input("--max-units must be at least 1");
  if (limits.threads < 0 || limits.threads > 1024)
    return invalid_input("--threads must be 1 to 1024, or 0 for one per core");
  return ok_status();
}

void define_search_options(CLI::App& app, SearchLimits& limits, uint64_t& seed) {
  app.add_option("--time-limit", limits.time_limit_s,
                 "seconds of the search; stops earlier when proven; 10, or none with --max-units");
  app.add_option("--max-units", limits.max_units,
                 "work units; with this limit the result is reproducible");
  app.add_option("--seed", seed, "seed of all random choices")
      ->check(not_negative)
      ->capture_default_str();
  app.add_option("--threads", limits.threads,
                 "0: one per core; never changes the result of a unit");
}

std::string not_negative(const std::string& text) {
  return text.rfind('-', 0) == 0 ? text + " must not be negative" : "";
}

}  // namespace braid
