// Ends sequences at stop strings, decoding every token once. Keeps a decoder per sequence; not
// thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "rollout/engine.h"

namespace braid::inline rollout {

// A check for Engine::set_stop_check() that ends a sequence as soon as its decoded text holds one
// of the strings, wherever in the text; null when there are no strings. Text that does not decode
// ends nothing.
StopCheck stop_at_strings(const Tokenizer& tokenizer, const std::vector<std::string>& stops);

}  // namespace braid::inline rollout
