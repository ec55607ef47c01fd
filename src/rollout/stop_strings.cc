#include "rollout/stop_strings.h"

#include <algorithm>

namespace braid::inline rollout {
namespace {

// The text of one sequence so far, as far as a match may still begin in it.
struct Tail {
  explicit Tail(const Tokenizer& tokenizer) : decoder(tokenizer, true) {}
  IncrementalDecoder decoder;
  std::string text;
  size_t tokens = 0;  // pushed
};

class StopStrings {
 public:
  StopStrings(const Tokenizer& tokenizer, const std::vector<std::string>& stops)
      : tokenizer_(tokenizer), stops_(stops) {
    for (const std::string& stop : stops_) longest_ = std::max(longest_, stop.size());
  }

  bool ends(const Generated& sample) {
    Tail& tail = tails_.try_emplace(sample.sample.value, tokenizer_).first->second;
    bool found = false;
    for (; tail.tokens < sample.response_ids.size() && !found; ++tail.tokens) {
      const auto piece = tail.decoder.push(sample.response_ids[tail.tokens]);
      if (!piece.ok()) continue;
      tail.text += *piece;
      found = holds_stop(tail.text);
      if (tail.text.size() > longest_) tail.text.erase(0, tail.text.size() - longest_);
    }
    if (found) tails_.erase(sample.sample.value);
    return found;
  }

 private:
  bool holds_stop(const std::string& text) const {
    return std::any_of(stops_.begin(), stops_.end(), [&](const std::string& stop) {
      return text.find(stop) != std::string::npos;
    });
  }

  const Tokenizer& tokenizer_;
  std::vector<std::string> stops_;
  size_t longest_ = 0;  // bytes
  std::map<int64_t, Tail> tails_;
};

}  // namespace

StopCheck stop_at_strings(const Tokenizer& tokenizer, const std::vector<std::string>& stops) {
  if (stops.empty()) return nullptr;
  auto state = std::make_shared<StopStrings>(tokenizer, stops);
  return [state](const Generated& sample) { return state->ends(sample); };
}

}  // namespace braid::inline rollout
