#include "session/step_timeline.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace braid::inline session {
namespace {

constexpr double kShortest_s = 20e-6;  // shorter spans are no wider than a pixel
constexpr size_t kMostLengths = 200;

// Two calls whose passes are fused have their spans in common.
std::string names_of(const Program& program, const Instruction& instruction) {
  const std::string& name = program.graph.calls[instruction.call.value].name;
  if (instruction.kind != OpKind::kPasses || instruction.detail < 0) return name;
  const auto& calls = program.fused[instruction.detail].calls;
  return cat(program.graph.calls[calls[0].value].name, " + ",
             program.graph.calls[calls[1].value].name);
}

// A generation's rounds, what agrees on them and what counts what is left follow each other for
// every token: they are one span.
OpKind kind_of(const Program& program, const Instruction& instruction) {
  const bool generates = program.graph.calls[instruction.call.value].kind == CallKind::kGenerate;
  const bool counts = instruction.kind == OpKind::kAgree || instruction.kind == OpKind::kTally;
  return generates && counts ? OpKind::kRound : instruction.kind;
}

}  // namespace

bool is_recorded(const Config& config, int64_t step) {
  const int64_t total = config.train.total_steps, wanted = config.report.recorded_steps;
  if (wanted <= 0) return false;
  return step % ((total + wanted - 1) / wanted) == 0 || step == total - 1;
}

void StepTimeline::begin_step(bool records) {
  on_ = records && rank_ < kMostRecordedRanks;
  begin_ = std::chrono::steady_clock::now();
  open_ = false;
  spans_.clear();
  left_out_ = 0;
  memory_.clear();
}

double StepTimeline::now_s() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

bool StepTimeline::same(const Span& a, const Span& b) const {
  const auto& list = program_.ranks[rank_].instructions;
  const Instruction &left = list[a.instruction], &right = list[b.instruction];
  return a.waits == b.waits && left.call == right.call &&
         kind_of(program_, left) == kind_of(program_, right);
}

void StepTimeline::close() {
  if (!std::exchange(open_, false)) return;
  span_.end_s = now_s();
  // Rounds are one span however long something else has had the core between two of them.
  const auto& now = program_.ranks[rank_].instructions[span_.instruction];
  const bool goes_on = !spans_.empty() && same(spans_.back(), span_) &&
                       (kind_of(program_, now) == OpKind::kRound ||
                        span_.begin_s - spans_.back().end_s < kShortest_s);
  if (goes_on) {
    spans_.back().end_s = span_.end_s;
  } else if (span_.end_s - span_.begin_s >= kShortest_s) {
    if (spans_.size() < kMostSpans)
      spans_.push_back(span_);
    else
      ++left_out_;
  }
}

void StepTimeline::enter(size_t instruction, bool waits) {
  if (!on_) return;
  Span next{instruction, waits};
  if (open_ && same(span_, next)) return;
  close();
  next.begin_s = now_s();
  span_ = next;
  open_ = true;
}

void StepTimeline::hold(const std::string& owner, int64_t bytes) {
  if (!on_ || bytes <= 0) return;
  int64_t& most = memory_[owner];
  most = std::max(most, bytes);
}

Json StepTimeline::span_json(const Span& span) const {
  const Instruction& instruction = program_.ranks[rank_].instructions[span.instruction];
  return {names_of(program_, instruction),
          span.waits ? "wait" : op_kind_name(kind_of(program_, instruction)), span.begin_s,
          span.end_s};
}

Json StepTimeline::take() {
  if (!std::exchange(on_, false)) return {};
  close();
  Json spans = Json::array();
  for (const Span& span : spans_) spans.push_back(span_json(span));
  return {{"spans", std::move(spans)}, {"left_out", left_out_}, {"memory", memory_}};
}

std::vector<int64_t> length_quantiles(std::vector<int64_t> lengths) {
  std::sort(lengths.begin(), lengths.end());
  if (lengths.size() <= kMostLengths) return lengths;
  std::vector<int64_t> out;
  for (size_t i = 0; i < kMostLengths; ++i)
    out.push_back(lengths[i * (lengths.size() - 1) / (kMostLengths - 1)]);
  return out;
}

}  // namespace braid::inline session
