// Tabulated plan-search problems: for every model function call the allowed options (devices,
// layout, time, memory) and a table of parameter moves, so that a plan can be priced without a cost
// model. Plain values and their JSON form; parsers take text. Thread-safe (no shared state).
//
// Invariants of a Problem that parse_problem returned: at least one call and one iteration, every
// call has options, every option lies inside the cluster and its pp * tp * dp equals its device
// count, dependencies are acyclic, and no sum that pricing forms can overflow.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace braid::tabular {

// A call takes a bit in 32-bit masks; ten times what RLHF algorithms use.
inline constexpr int kMaxCalls = 32;

struct Layout {
  int32_t pp = 1;
  int32_t tp = 1;
  int32_t dp = 1;
  friend auto operator<=>(const Layout&, const Layout&) = default;
};

struct Option {
  int32_t first_device = 0;
  int32_t num_devices = 0;
  Layout layout;
  int64_t time_us = 0;
  int64_t peak_bytes = 0;    // per device while the call runs, static part included
  int64_t static_bytes = 0;  // per device, held all the time
  int32_t end_device() const { return first_device + num_devices; }
};

enum class CallKind { kGenerate, kInfer, kTrainStep };

struct Call {
  std::string name;
  std::string role;
  CallKind kind = CallKind::kInfer;
  std::string model_size;       // canonical text of the label, a key of Problem::moves only
  std::vector<int> depends_on;  // indices into Problem::calls, ascending
  std::vector<Option> options;
};

// A row of the move table: time to bring one model's parameters from one layout to another.
struct Move {
  std::string model_size;
  Layout source;
  Layout destination;
  int64_t time_us = 0;
};

struct Problem {
  std::string name;
  int32_t num_devices = 0;
  int64_t device_memory_bytes = 0;
  int32_t iterations = 1;
  std::vector<Call> calls;
  std::vector<Move> moves;  // sorted by (model_size, source, destination), no two rows alike
};

// A train call and the call of its role that it exchanges parameters with (rule 2 of the format).
struct MovePair {
  int train = 0;
  int other = 0;
};

// Reads and validates one problem; an error names `where`, the call, the option and the remedy.
Result<Problem> parse_problem(std::string_view text, const std::string& where);

// The train calls that have a partner, in listed order.
std::vector<MovePair> move_pairs(const Problem& problem);

// The row for this move, or null when the table has none.
const Move* find_move(const Problem& problem, const std::string& model_size, const Layout& source,
                      const Layout& destination);

// No plan's iteration takes longer: the sum of each call's slowest option and of all moves at the
// slowest.
int64_t longest_iteration_us(const Problem& problem);

// A plan: one option index per call, in the order of Problem::calls.
using Plan = std::vector<int>;

// {"choices": {"<call name>": <option index>, ...}}; every call exactly once and no other.
Result<Plan> parse_plan(const Problem& problem, std::string_view text, const std::string& where);
std::string plan_text(const Problem& problem, const Plan& plan);

}  // namespace braid::tabular
