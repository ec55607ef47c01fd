#include "nn/kernels/choice.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <limits>
#include <vector>

#include "base/log.h"
#include "base/text.h"
#include "nn/kernels/choice_cache.h"
#include "nn/kernels/kernels.h"
#include "nn/kernels/panels.h"

namespace braid::inline nn {
namespace {

constexpr std::array<int64_t, 3> kMeasuredRows = {8, 32, 256};
constexpr int64_t kMeasuredWidth = 4096;  // larger weights are judged by one of this size
constexpr double kClearlySlower = 1.1, kSlowerWhenBusy = 1.5;
constexpr size_t kSameRuns = 3;  // that differ by less than this ratio were undisturbed
constexpr double kSameTime = 1.05;
constexpr int kFewestRounds = 8, kMostRounds = 24;
constexpr std::array kLibraries = {MatrixLibrary::kOwn, MatrixLibrary::kPacked,
                                   MatrixLibrary::kDefault};
constexpr int64_t kInvariantRows = 64;
constexpr int64_t kPackRows = 64;  // batch that the packed layout is laid out for

// The operators have no declaration in libtorch's headers; they are found by name.
using PackOperator = at::Tensor(const at::Tensor&, std::optional<c10::SymInt>);
using GemmOperator = at::Tensor(const at::Tensor&, const at::Tensor&,
                                const std::optional<at::Tensor>&, std::string_view,
                                c10::List<std::optional<at::Scalar>>,
                                std::optional<std::string_view>);

std::optional<c10::OperatorHandle> find_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchema({name, ""});
}

std::map<GemmShape, MatrixLibrary>& table() {
  static std::map<GemmShape, MatrixLibrary> choices;
  return choices;
}

// Without its extension bf16 is emulated.
bool onednn_packs(at::ScalarType dtype) {
#if defined(__x86_64__)
  static const bool found = find_operator("mkldnn::_linear_pointwise").has_value() &&
                            find_operator("mkldnn::_reorder_linear_weight").has_value();
  if (!found) return false;
  if (dtype == at::kFloat) return __builtin_cpu_supports("avx2") != 0;
  return dtype == at::kBFloat16 && __builtin_cpu_supports("avx512bf16") != 0;
#else
  static_cast<void>(dtype);
  return false;
#endif
}

using Gemm = std::function<at::Tensor(const at::Tensor& x)>;

// True when rows of small batches have the bits of the same rows of larger ones.
bool rows_are_invariant(const at::Tensor& x, const Gemm& gemm,
                        const std::vector<int64_t>& batches) {
  const at::Tensor whole = gemm(x);
  return std::all_of(batches.begin(), batches.end(), [&](int64_t rows) {
    return at::equal(gemm(x.narrow(0, 0, rows)), whole.narrow(0, 0, rows));
  });
}

// Of the default library every number of rows that it is given.
std::vector<int64_t> batches_of(MatrixLibrary library) {
  if (library != MatrixLibrary::kDefault) return {8, 16, 24, 32, 40, 48, 56, 61};
  std::vector<int64_t> out;
  for (int64_t rows = 1; rows <= kInvariantRows; ++rows)
    if (padded_rows(rows, library) == rows) out.push_back(rows);
  return out;
}

bool has_another(MatrixLibrary library, at::ScalarType dtype) {
  return std::any_of(kLibraries.begin(), kLibraries.end(), [&](MatrixLibrary other) {
    return other != library && has_library(other, dtype);
  });
}

// Numbers in [-0.5, 0.5) from a generator of its own: libtorch's is the caller's.
at::Tensor random_matrix(int64_t rows, int64_t columns, at::ScalarType dtype) {
  at::Tensor matrix = at::empty({rows, columns}, at::kFloat);
  float* data = matrix.mutable_data_ptr<float>();
  uint32_t state = 1;
  for (int64_t i = 0; i < rows * columns; ++i) {
    state = state * 1664525U + 1013904223U;
    data[i] = static_cast<float>(state >> 8) / 16777216.0F - 0.5F;
  }
  return matrix.to(dtype);
}

// Times of one library for one number of rows; the fastest counts, since others were disturbed.
class RunTimes {
 public:
  void add(double us) {
    fastest_us_.push_back(us);
    std::sort(fastest_us_.begin(), fastest_us_.end());
    fastest_us_.resize(std::min(fastest_us_.size(), kSameRuns));
  }
  double fastest_us() const { return fastest_us_.front(); }
  // True where other runs took as long: those of a busy machine seldom do.
  bool confirmed() const {
    return fastest_us_.size() == kSameRuns && fastest_us_.back() <= kSameTime * fastest_us_.front();
  }

 private:
  std::vector<double> fastest_us_;  // ascending
};

// A library that may be taken for a shape.
struct Candidate {
  MatrixLibrary library;
  Gemm gemm;
  std::array<RunTimes, kMeasuredRows.size()> times;

  bool confirmed() const {
    return std::all_of(times.begin(), times.end(), [](const RunTimes& t) { return t.confirmed(); });
  }
};

std::optional<Candidate> candidate(MatrixLibrary library, const at::Tensor& x,
                                   const at::Tensor& w) {
  if (!has_library(library, w.scalar_type())) return std::nullopt;
  const bool packs = library != MatrixLibrary::kDefault;
  const at::Tensor packed = packs ? pack_weight(w, library) : w;
  const Gemm gemm = [=](const at::Tensor& rows) {
    return packs ? packed_gemm(rows, packed, {}) : at::linear(rows, w);
  };
  // Packed weights against a batch of decode steps, the default also against one of training: on
  // some processors it is not invariant. Where there is no other it is taken all the same.
  const at::Tensor compared = packs ? x.narrow(0, 0, kInvariantRows) : x;
  if ((packs || has_another(library, w.scalar_type())) &&
      !rows_are_invariant(compared, gemm, batches_of(library)))
    return std::nullopt;
  return Candidate{library, gemm, {}};
}

// One run of every candidate for every number of rows: in turn, so that what disturbs the machine
// for a while disturbs all alike.
void measure_once(const at::Tensor& x, std::vector<Candidate>* candidates) {
  for (size_t i = 0; i < kMeasuredRows.size(); ++i)
    for (Candidate& one : *candidates) {
      const at::Tensor rows = x.narrow(0, 0, kMeasuredRows[i]);
      const auto begin = std::chrono::steady_clock::now();
      one.gemm(rows);
      const auto took = std::chrono::steady_clock::now() - begin;
      one.times[i].add(std::chrono::duration<double, std::micro>(took).count());
    }
}

// The first candidate that is not slower than the best by more than a margin, in times of the
// fastest at each number of rows. REQUIRES: at least one.
MatrixLibrary fastest_library(const std::vector<Candidate>& candidates, double margin) {
  std::vector<double> slowness(candidates.size());
  for (size_t i = 0; i < kMeasuredRows.size(); ++i) {
    double fastest = std::numeric_limits<double>::infinity();
    for (const Candidate& one : candidates) fastest = std::min(fastest, one.times[i].fastest_us());
    for (size_t l = 0; l < candidates.size(); ++l)
      slowness[l] += candidates[l].times[i].fastest_us() / fastest;
  }
  const double best = *std::min_element(slowness.begin(), slowness.end());
  const auto taken = std::find_if(slowness.begin(), slowness.end(),
                                  [&](double slow) { return slow <= margin * best; });
  return candidates[static_cast<size_t>(taken - slowness.begin())].library;
}

// The choice is kept for good, so what was measured on a busy machine has to be much better.
MatrixLibrary measured_library(const GemmShape& shape) {
  const at::NoGradGuard no_grad;
  const int64_t in = std::min(shape.in, kMeasuredWidth), out = std::min(shape.out, kMeasuredWidth);
  const at::Tensor w = random_matrix(out, in, shape.dtype);
  const at::Tensor x = random_matrix(kMeasuredRows.back(), in, shape.dtype);
  std::vector<Candidate> candidates;
  for (MatrixLibrary library : kLibraries)
    if (auto one = candidate(library, x, w)) candidates.push_back(*std::move(one));
  if (candidates.empty()) return MatrixLibrary::kDefault;
  const auto confirmed = [&] {
    return std::all_of(candidates.begin(), candidates.end(),
                       [](const Candidate& one) { return one.confirmed(); });
  };
  for (int round = 0; round < kFewestRounds || (round < kMostRounds && !confirmed()); ++round)
    measure_once(x, &candidates);
  return fastest_library(candidates, confirmed() ? kClearlySlower : kSlowerWhenBusy);
}

const char* library_name(MatrixLibrary library) {
  switch (library) {
    case MatrixLibrary::kOwn:
      return "own";
    case MatrixLibrary::kPacked:
      return "packed";
    case MatrixLibrary::kDefault:
      break;
  }
  return "default";
}

std::string shape_text(const GemmShape& shape) {
  return cat(shape.dtype == at::kFloat ? "f32 " : "bf16 ", shape.in, " ", shape.out);
}

std::optional<GemmShape> parse_shape(const std::string& text) {
  const std::vector<std::string> words = split(text, ' ');
  GemmShape shape;
  if (words.size() != 3 || (words[0] != "f32" && words[0] != "bf16") ||
      !parse_int(words[1], &shape.in) || !parse_int(words[2], &shape.out))
    return std::nullopt;
  shape.dtype = words[0] == "f32" ? at::kFloat : at::kBFloat16;
  return shape;
}

Result<std::pair<GemmShape, MatrixLibrary>> parse_choice(const std::string& line) {
  const size_t name = line.rfind(' ') + 1;  // 0 where there is none
  const auto shape = parse_shape(line.substr(0, name == 0 ? 0 : name - 1));
  const auto* library = std::find_if(
      kLibraries.begin(), kLibraries.end(),
      [&](MatrixLibrary known) { return shape && line.substr(name) == library_name(known); });
  if (library == kLibraries.end())
    return invalid_input(cat("'", line, "' is no choice of a matrix library (DTYPE IN OUT NAME)"));
  if (!has_library(*library, shape->dtype))
    return invalid_input(cat("'", line, "': this machine has no such GEMMs"));
  return std::pair(*shape, *library);
}

ChoiceAgreement*& agreement() {
  static ChoiceAgreement* of_job = nullptr;
  return of_job;
}

// What the job settled; none where this machine lacks that library.
std::optional<MatrixLibrary> taken_from_job(const GemmShape& shape, const std::string& library) {
  const auto choice = parse_choice(cat(shape_text(shape), " ", library));
  if (choice.ok()) return choice->second;
  log_warning(cat("this rank's numbers differ from those of other ranks in their last bits: ",
                  choice.status().message()));
  return std::nullopt;
}

// For later runs of this machine; what an earlier one kept stays.
void keep_choice(const GemmShape& shape, MatrixLibrary library) {
  const std::string kept = cached_matrix_choices(), line_begin = cat(shape_text(shape), " ");
  if (cat("\n", kept).find(cat("\n", line_begin)) != std::string::npos) return;
  cache_matrix_choices(cat(kept, line_begin, library_name(library), "\n"));
}

MatrixLibrary new_choice(const GemmShape& shape) {
  ChoiceAgreement* const job = agreement();
  if (job != nullptr)
    if (const auto known = job->known(shape_text(shape)))
      if (const auto library = taken_from_job(shape, *known)) return *library;
  MatrixLibrary chosen = measured_library(shape);
  if (job != nullptr)
    chosen = taken_from_job(shape, job->settle(shape_text(shape), library_name(chosen)))
                 .value_or(chosen);
  keep_choice(shape, chosen);
  return chosen;
}

}  // namespace

void make_choices_with(ChoiceAgreement* of_job) { agreement() = of_job; }

// Choices already made win over those of the cache.
void take_cached_choices() {
  const std::map<GemmShape, MatrixLibrary> made = table();
  if (!set_matrix_choices(cached_matrix_choices()).ok()) return;
  for (const auto& [shape, library] : made) table()[shape] = library;
}

// Ranks of a job take no choice from their machine's cache: rank 0 has told what it knows.
MatrixLibrary matrix_library(const GemmShape& shape) {
  if (const auto found = table().find(shape); found != table().end()) return found->second;
  if (agreement() == nullptr) take_cached_choices();
  if (const auto cached = table().find(shape); cached != table().end()) return cached->second;
  return table()[shape] = new_choice(shape);
}

std::string matrix_choices() {
  std::string text;
  std::map<GemmShape, std::string> names;
  for (const auto& [shape, library] : table()) names[shape] = library_name(library);
  if (agreement() != nullptr)
    for (const auto& [shape, library] : agreement()->all())
      if (const auto known = parse_shape(shape)) names[*known] = library;
  for (const auto& [shape, name] : names) text += cat(shape_text(shape), " ", name, "\n");
  return text;
}

Status set_matrix_choices(const std::string& text) {
  std::map<GemmShape, MatrixLibrary> choices = table();
  for (const std::string& line : split(text, '\n')) {
    if (trim(line).empty()) continue;
    BRAID_ASSIGN(const auto choice, parse_choice(line));
    choices[choice.first] = choice.second;
  }
  table() = std::move(choices);
  return ok_status();
}

bool has_library(MatrixLibrary library, at::ScalarType dtype) {
  if (library == MatrixLibrary::kOwn) return panels::simd_for(dtype) != panels::Simd::kNone;
  return library == MatrixLibrary::kDefault || onednn_packs(dtype);
}

// Small batches fill whole tiles of four rows, at least kMinRows. With oneDNN's packed weights
// every number of rows has a kernel of its own, generated on first use: few different ones are
// wanted.
int64_t padded_rows(int64_t rows, MatrixLibrary library) {
  if (library == MatrixLibrary::kOwn) return rows;
  if (rows <= kMinRows) return kMinRows;
  if (library == MatrixLibrary::kPacked) {
    const int64_t tile = rows <= 256 ? kMinRows : rows <= 1024 ? 64 : rows <= 2048 ? 128 : 256;
    return (rows + tile - 1) / tile * tile;
  }
  return rows < kMinRows + 4 ? kMinRows + 4 : rows;
}

at::Tensor pack_weight(const at::Tensor& w_OI, MatrixLibrary library) {
  if (library == MatrixLibrary::kOwn) return panels::pack(w_OI.detach());
  static const auto pack = find_operator("mkldnn::_reorder_linear_weight")->typed<PackOperator>();
  return pack.call(w_OI.detach(), c10::SymInt(kPackRows));
}

MatrixLibrary library_of_packed(const at::Tensor& packed) {
  return packed.is_mkldnn() ? MatrixLibrary::kPacked : MatrixLibrary::kOwn;
}

at::Tensor packed_gemm(const at::Tensor& x_TI, const at::Tensor& packed, const at::Tensor& b_O) {
  if (library_of_packed(packed) == MatrixLibrary::kOwn)
    return panels::gemm(x_TI, packed, b_O, panels::simd_for(x_TI.scalar_type()));
  static const auto gemm = find_operator("mkldnn::_linear_pointwise")->typed<GemmOperator>();
  const std::optional<at::Tensor> bias = b_O.defined() ? std::optional(b_O) : std::nullopt;
  return gemm.call(x_TI, packed, bias, "none", c10::List<std::optional<at::Scalar>>(), "");
}

}  // namespace braid::inline nn
