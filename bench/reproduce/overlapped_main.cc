// Prints measured colocated and overlapping runs of NeMo-RL and verl beside what Braid says. usage:
// reproduce_overlapped [measurements = examples/measurements/measurements.csv]
#include <cstdio>
#include <fstream>
#include <sstream>

#include "base/text.h"
#include "cost/predict.h"
#include "overlapped.h"

namespace braid::reproduce {
namespace {

std::string simulated(const Measurement& row, double* per_gpu) {
  const auto one = overlap_case(row);
  if (!one.ok()) return "-";
  const auto time = steady_time(*one, committed_calibration());
  if (!time.ok()) return time.status().message();
  *per_gpu = time->step_s * *row.n_gpus;
  return cat(number(time->step_s, 1), time->fits ? "" : " (no memory)");
}

std::string closed_form(const Measurement& row, double* per_gpu) {
  const auto resolved = resolve_row(row);
  if (!resolved.ok()) return "-";
  const auto seconds =
      predict_case(*resolved, resolve_efficiency(committed_calibration(), resolved->key));
  if (!seconds.ok()) return "-";
  *per_gpu = *seconds * *row.n_gpus;
  return number(*seconds, 1);
}

std::string gain(double colocated, double overlapped) {
  return colocated > 0 && overlapped > 0 ? number(colocated / overlapped, 2) : "-";
}

void pair_row(const OverlapPair& pair) {
  const Measurement &a = pair.colocated, &b = pair.overlapped;
  double simulated_a = 0, simulated_b = 0, closed_a = 0, closed_b = 0;
  const std::string sim_a = simulated(a, &simulated_a), sim_b = simulated(b, &simulated_b);
  const std::string form_a = closed_form(a, &closed_a), form_b = closed_form(b, &closed_b);
  print_row({pair.group, cat(*a.n_gpus), cat(*b.n_gpus - *b.rollout_gpus, " + ", *b.rollout_gpus),
             number(*a.value, 1), sim_a, form_a, number(*b.value, 1), sim_b, form_b,
             gain(*a.value * *a.n_gpus, *b.value * *b.n_gpus), gain(simulated_a, simulated_b),
             gain(closed_a, closed_b)});
}

int nemo_table(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  const auto rows = parse_measurements(text.str(), path);
  if (!rows.ok()) {
    std::fprintf(stderr, "%s\n", rows.status().message().c_str());
    return 2;
  }
  std::printf("\nNeMo-RL: seconds per step; gain = device seconds colocated over one step off\n\n");
  print_header({"workload", "GPUs colocated", "train + rollout", "colocated, published",
                "simulated", "closed form", "one step off, published", "simulated", "closed form",
                "gain, published", "simulated", "closed form"});
  for (const OverlapPair& pair : overlap_pairs(*rows)) pair_row(pair);
  return 0;
}

}  // namespace
}  // namespace braid::reproduce

int main(int argc, char** argv) {
  return braid::reproduce::nemo_table(argc > 1 ? argv[1]
                                               : "examples/measurements/measurements.csv");
}
