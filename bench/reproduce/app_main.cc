// Prints what APP published beside what Braid's search and simulator say of its setting. usage:
// reproduce_app [rows = all]
#include <cstdio>
#include <cstdlib>

#include "app.h"
#include "base/text.h"
#include "experiment.h"

namespace braid::reproduce {
namespace {

std::string seconds_of(const Result<WholeFound>& found) {
  return found.ok() ? number(found->best.verdict.step_s, 1) : "no plan";
}

int print_rows(size_t count) {
  print_header({"model", "GPUs", "Gbit/s of a GPU", "ZeRO-3, weights gathered for each token, s",
                "of it generation", "ZeRO-3, generation with whole weights, s",
                "best of APP's space, s", "times as fast", "ours, s", "times as fast"});
  const auto rows = app_rows();
  for (size_t i = 0; i < std::min(count, rows.size()); ++i) {
    const AppRow& row = rows[i];
    const auto times = run_app(row, committed_calibration(), {});
    if (!times.ok()) return std::fprintf(stderr, "%s\n", times.status().message().c_str()), 1;
    const auto gain = [&](const Result<WholeFound>& found) {
      return found.ok() ? number(times->gathered_s / found->best.verdict.step_s, 1) : "";
    };
    print_row({row.model, cat(row.gpus), cat(row.nic_gbps_per_gpu), number(times->gathered_s, 1),
               number(100 * times->gathered_generate_s / times->gathered_s, 0) + " %",
               number(times->hybrid_s, 1) + (times->gathered_fits ? "" : " (no memory)"),
               seconds_of(times->app), gain(times->app), seconds_of(times->ours),
               gain(times->ours)});
  }
  return 0;
}

}  // namespace
}  // namespace braid::reproduce

int main(int argc, char** argv) {
  return braid::reproduce::print_rows(argc > 1 ? std::atoll(argv[1])
                                               : braid::reproduce::app_rows().size());
}
