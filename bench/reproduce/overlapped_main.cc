// Prints measured colocated and overlapping runs of NeMo-RL and verl beside what Braid says. usage:
// reproduce_overlapped [measurements = examples/measurements/measurements.csv]
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "base/text.h"
#include "calibrate/predict.h"
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

Result<std::vector<Measurement>> read_rows(const std::string& path) {
  std::ifstream file(path);
  if (!file) return invalid_input(cat(path, ": cannot be read; give the path of measurements.csv"));
  std::stringstream text;
  text << file.rdbuf();
  return parse_measurements(text.str(), path);
}

void nemo_table(const std::vector<Measurement>& rows) {
  std::printf("\nNeMo-RL: seconds per step; gain = device seconds colocated over one step off\n\n");
  print_header({"workload", "GPUs colocated", "train + rollout", "colocated, published",
                "simulated", "closed form", "one step off, published", "simulated", "closed form",
                "gain, published", "simulated", "closed form"});
  for (const OverlapPair& pair : overlap_pairs(rows)) pair_row(pair);
}

void phase_table(const std::vector<Measurement>& rows) {
  std::printf(
      "\nverl one step off, 12 + 4 of 16 H20: measured phases, and the step that they make\n\n");
  print_header({"workload", "placement", "generate s", "learn s", "sum or longer side",
                "published step", "not explained"});
  for (const PhaseRun& run : phase_runs(rows)) {
    const double made = run.placement == "colocated" ? run.generate_s + run.learn_s
                                                     : std::max(run.generate_s, run.learn_s);
    print_row({run.group, run.placement, number(run.generate_s, 0), number(run.learn_s, 0),
               number(made, 0), number(run.total_s, 0), number(run.total_s - made, 0)});
  }
}

struct VerlRow {
  int gpus = 32;
  double colocated_s = 0, update_s = 0, async_s = 0;  // published
};

std::string steady(const VerlSetting& setting, double* step_s) {
  const auto one = verl_case(setting);
  if (!one.ok()) return one.status().message();
  const auto time = steady_time(*one, committed_calibration());
  if (!time.ok()) return time.status().message();
  *step_s = time->step_s;
  return cat(number(time->step_s, 0), " (", number(time->generate_s, 0), " / ",
             number(time->learn_s, 0), ")", time->fits ? "" : " (no memory)");
}

// Fully asynchronous verl (docs/advance/fully_async.md): the mean length is not stated, so the one
// that gives the published update time on 32 devices is used for all rows.
void verl_table() {
  std::printf(
      "\nverl, 7B on H20, 512 x 16 sequences up to 28k tokens: step seconds (computing "
      "in generation / in learning)\n\n");
  const VerlRow rows[] = {
      {32, 790.1, 313.8, 294.8}, {64, 365.3, 133.4, 189.3}, {128, 356.3, 113.8, 150.6}};
  VerlSetting setting;
  setting.mean_response = mean_response_for(setting, rows[0].update_s);
  std::printf("mean response %.0f tokens\n\n", setting.mean_response);
  print_header({"GPUs", "colocated, published", "simulated", "asynchronous on halves, published",
                "one step off, simulated", "gain, published", "simulated"});
  for (const VerlRow& row : rows) {
    double colocated_s = 0, apart_s = 0;
    setting.gpus = row.gpus;
    setting.rollout_gpus = 0;
    const std::string colocated = steady(setting, &colocated_s);
    setting.rollout_gpus = row.gpus / 2;
    const std::string apart = steady(setting, &apart_s);
    print_row({cat(row.gpus), number(row.colocated_s, 1), colocated, number(row.async_s, 1), apart,
               gain(row.colocated_s, row.async_s), gain(colocated_s, apart_s)});
  }
}

// 16 devices and responses up to 10k tokens: published 484.6 s colocated and 490.0 s on halves, so
// that nothing is won. By mean length, since it is not stated.
void verl_small_table() {
  std::printf(
      "\nverl, 7B on 16 H20, up to 10k tokens; published 484.6 colocated, 490.0 on 8 + 8\n\n");
  print_header({"mean response", "colocated", "8 + 8", "4 + 12", "best gain"});
  for (const double mean : {1000, 2000, 4000, 6000}) {
    VerlSetting setting;
    setting.gpus = 16;
    setting.longest_response = 10240;
    setting.mean_response = mean;
    double colocated_s = 0, halves_s = 0, quarter_s = 0;
    const std::string colocated = steady(setting, &colocated_s);
    setting.rollout_gpus = 8;
    const std::string halves = steady(setting, &halves_s);
    setting.rollout_gpus = 12;
    const std::string quarter = steady(setting, &quarter_s);
    print_row({number(mean, 0), colocated, halves, quarter,
               gain(colocated_s, std::min(halves_s, quarter_s))});
  }
}

}  // namespace
}  // namespace braid::reproduce

int main(int argc, char** argv) {
  using namespace braid::reproduce;
  const auto rows = read_rows(argc > 1 ? argv[1] : "examples/measurements/measurements.csv");
  if (!rows.ok()) {
    std::fprintf(stderr, "%s\n", rows.status().message().c_str());
    return 2;
  }
  nemo_table(*rows);
  phase_table(*rows);
  verl_table();
  verl_small_table();
  return 0;
}
