#include "data/tokenizer/vocabulary.h"

namespace braid::inline data {

Result<TextMap<int32_t>> parse_vocabulary(const Json& model) {
  const auto vocabulary = model.find("vocab");
  if (vocabulary == model.end() || !vocabulary->is_object())
    return invalid_input("the model has no 'vocab' object");
  TextMap<int32_t> out;
  out.reserve(vocabulary->size());
  for (const auto& entry : vocabulary->items()) {
    if (!entry.value().is_number_integer() || entry.value().get<int64_t>() < 0 ||
        entry.value().get<int64_t>() >= INT32_MAX)
      return invalid_input(cat("vocab: the id of '", entry.key(), "' is no token id"));
    out.emplace(entry.key(), entry.value().get<int32_t>());
  }
  return out;
}

}  // namespace braid::inline data
