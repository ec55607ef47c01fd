#include "run/idle_watch.h"

#include "base/text.h"
#include "passes/train_call_facts.h"

namespace braid::inline run {
namespace {

using Row = std::map<std::string, double>;

constexpr int64_t kFirstRun = 3;  // idle steps in a row after which it is said again

double number(const Row& row, const std::string& name, double otherwise) {
  const auto found = row.find(name);
  return found == row.end() ? otherwise : found->second;
}

// REQUIRES: no sample is left.
std::string no_samples(const Config& config, const Row& row) {
  if (config.algorithm.mask_truncated && number(row, "length/truncated_frac", 0) > 0)
    return cat("no response that could be trained on ended within rollout.max_response_length (",
               config.rollout.max_response_length,
               " tokens), and algorithm.mask_truncated leaves out those that were cut; raise the "
               "limit, or set algorithm.mask_truncated=false");
  return "no sample of the step is left to train on";
}

// REQUIRES: every gradient was 0.
std::string no_gradient(const Row& row) {
  if (number(row, "adv/zero_std_frac", 0) == 1)
    return cat("the responses to each prompt have equal rewards (reward/raw_mean ",
               format_double(number(row, "reward/raw_mean", 0)),
               "), so that none is better than another; prompts that are neither too hard nor too "
               "easy, a finer reward or more rollout.samples_per_prompt would help");
  if (number(row, "adv/min", 1) == 0 && number(row, "adv/max", 1) == 0)
    return "all advantages are 0";
  return "every gradient is 0";
}

// Whether a run of idle steps has grown enough to be said again: 3, 6, 12, ...
bool is_said(int64_t in_a_row) {
  int64_t said = kFirstRun;
  while (said < in_a_row) said *= 2;
  return said == in_a_row;
}

}  // namespace

std::string IdleWatch::reason(const Call& call, int64_t step, const Row& row) const {
  if (step < waiting_steps(config_, graph_, call.role)) return "";
  const std::string prefix = metric_prefix(call);
  if (number(row, prefix + "skipped", 0) > 0) return "";
  if (number(row, prefix + "kept_samples", 1) == 0) return no_samples(config_, row);
  if (number(row, prefix + "kept_tokens", 1) == 0)
    return "no token of the step is to be learnt (data.learn, and masks of the data, say which)";
  const auto norm = row.find(prefix + "grad_norm");
  if (norm != row.end()) return norm->second == 0 ? no_gradient(row) : "";
  return "no update was applied: algorithm.stop_kl ended the step before its first one";
}

std::string IdleWatch::note(int64_t step, const Row& row) {
  last_.clear();
  for (const Call& call : graph_.calls) {
    if (call.kind != CallKind::kTrainStep || !last_.empty()) continue;
    if (const std::string why = reason(call, step, row); !why.empty())
      last_ = cat("the ", call.role, " learns nothing: ", why);
  }
  in_a_row_ = last_.empty() ? 0 : in_a_row_ + 1;
  if (last_.empty() || (warned_ && !is_said(in_a_row_))) return "";
  warned_ = true;
  return cat("step ", step + 1, in_a_row_ > 1 ? cat(", ", in_a_row_, " steps in a row") : "", ": ",
             last_);
}

Status IdleWatch::status() const {
  const int64_t most = config_.train.max_idle_steps;
  if (most == 0 || in_a_row_ < most) return ok_status();
  return {Code::kStopped, cat("train.max_idle_steps (", in_a_row_, " in a row; ", last_, ")")};
}

}  // namespace braid::inline run
