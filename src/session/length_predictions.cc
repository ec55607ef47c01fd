#include "session/length_predictions.h"

#include <cmath>
#include <map>

namespace braid::inline session {
namespace {

struct PromptLengths {
  double responses = 0, tokens = 0, predicted = 0;
};

}  // namespace

bool predicts(const Config& config, const Program& program) {
  return program.predicts_lengths || (config.rollout.longest_first && generates(program.graph));
}

std::vector<int64_t> predicted_lengths(const SampleStore& store, const DataSet& data,
                                       const LengthHistory& history) {
  if (history.is_empty()) return {};
  std::vector<int64_t> out;
  for (const size_t row : store.all_rows())
    out.push_back(history.expected(data.index_at(store.sample(row).group.value)));
  return out;
}

void note_in_history(const SampleStore& store, const DataSet& data, LengthHistory* history) {
  const std::vector<int64_t> lens = store.response_lens();
  for (size_t row = 0; row < lens.size(); ++row)
    history->note(data.index_at(store.sample(row).group.value), lens[row]);
}

std::optional<double> length_correlation(const SampleStore& store,
                                         const std::vector<int64_t>& predicted) {
  if (predicted.empty()) return std::nullopt;
  const std::vector<int64_t> lens = store.response_lens();
  std::map<int64_t, PromptLengths> prompts;
  for (size_t row = 0; row < lens.size(); ++row) {
    PromptLengths& of = prompts[store.sample(row).group.value];
    of.responses += 1;
    of.tokens += static_cast<double>(lens[row]);
    of.predicted = static_cast<double>(predicted[row]);
  }
  double n = 0, x = 0, y = 0, xx = 0, yy = 0, xy = 0;
  for (const auto& [group, of] : prompts) {
    const double mean = of.tokens / of.responses;
    n += 1, x += of.predicted, y += mean;
    xx += of.predicted * of.predicted, yy += mean * mean, xy += of.predicted * mean;
  }
  const double spread = (n * xx - x * x) * (n * yy - y * y);
  if (!(spread > 0)) return std::nullopt;
  return (n * xy - x * y) / std::sqrt(spread);
}

}  // namespace braid::inline session
