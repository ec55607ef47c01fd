// What a rank did and held in a step, for the report of a run: spans of its instructions, and the
// most that each owner of memory held. Bounded: so many steps of a run, spans of a rank and ranks
// of a job. Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "config/options.h"
#include "program/program.h"
#include "session/rank_report.h"

namespace braid::inline session {

inline constexpr size_t kMostSpans = 300;  // of a rank in a step

// Whether a step is one of the report.recorded_steps that are spread over the run: the same on all
// ranks. The first and the last are.
bool is_recorded(const Config& config, int64_t step);

class StepTimeline {
 public:
  // REQUIRES: the program outlives this.
  StepTimeline(const Program& program, int64_t rank) : program_(program), rank_(rank) {}

  // A step begins now, which is recorded or not; what else is called does nothing where it is not.
  void begin_step(bool records);
  bool on() const { return on_; }
  // From now on the rank executes this instruction of its list, or waits for what it needs.
  void enter(size_t instruction, bool waits = false);
  // An owner of memory holds so many bytes; the most of the step stays.
  void hold(const std::string& owner, int64_t bytes);
  // {"spans": [[call, what, begin_s, end_s], ...], "left_out": spans beyond kMostSpans, "memory":
  // {owner: bytes}}, seconds since the begin; null where the step is not recorded. Ends it.
  Json take();

 private:
  struct Span {
    size_t instruction = 0;
    bool waits = false;
    double begin_s = 0, end_s = 0;
  };
  double now_s() const;
  void close();  // the open span
  bool same(const Span& a, const Span& b) const;
  Json span_json(const Span& span) const;

  const Program& program_;
  const int64_t rank_;
  bool on_ = false;
  std::chrono::steady_clock::time_point begin_;
  bool open_ = false;
  Span span_;  // that is open
  std::vector<Span> spans_;
  int64_t left_out_ = 0;
  std::map<std::string, int64_t> memory_;
};

// Lengths in ascending order, or as many of them as a report shows: evenly spread, the first and
// the last included.
std::vector<int64_t> length_quantiles(std::vector<int64_t> lengths);

}  // namespace braid::inline session
