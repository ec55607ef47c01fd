// Prints the training stage of RLHFuse's setting, one update after the other and fused, beside the
// published gain. usage: reproduce_fused
#include <cstdio>

#include "base/text.h"
#include "fused.h"

namespace braid::reproduce {
namespace {

void print_rows() {
  print_header({"actor + critic", "response", "actor s", "critic s", "one after the other s",
                "fused s", "gain, published", "ours", "ours, passes alone", "bound of those"});
  for (const FusedRow& row : fused_rows()) {
    const auto times = run_fused(row, committed_calibration());
    if (!times.ok()) {
      std::printf("%s\n", times.status().message().c_str());
      continue;
    }
    print_row({cat(row.actor, " + ", row.critic), cat(row.response_tokens),
               number(times->actor_s, 2), number(times->critic_s, 2), number(times->apart_s, 2),
               number(times->together_s, 2), "1.2-1.3",
               number(times->apart_s / times->together_s, 2),
               number(times->passes_apart / times->passes_together, 2),
               number(times->passes_apart / times->passes_bound, 2)});
  }
}

}  // namespace
}  // namespace braid::reproduce

int main() { braid::reproduce::print_rows(); }
