#include "data/response_text.h"

#include <algorithm>

namespace braid::inline data {

size_t stop_position(const std::vector<std::string>& stops, const std::string& text) {
  size_t first = std::string::npos;
  for (const std::string& stop : stops) first = std::min(first, text.find(stop));
  return first;
}

Result<std::string> response_text(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                                  const std::vector<std::string>& stops) {
  BRAID_ASSIGN(std::string text, tokenizer.decode(ids, true));
  return text.substr(0, stop_position(stops, text));
}

}  // namespace braid::inline data
