#include "data/tokenizer/difference.h"

#include "base/text.h"

namespace braid::inline data {
namespace {

// What normalizers, pre-tokenizers and merges treat in different ways.
constexpr const char* kProbes[] = {
    "Hello, world! It's 12345.678 o'clock; don't SHOUT.", "  two  blanks\n\n\ta tab \n",
    "def f(x):\n    return x**2 + a[i]\n",
    "\xc3\x9cn\xc3\xaf\x63\xc3\xb6\x64\xc3\xa9 \xe4\xbd\xa0\xe5\xa5\xbd \xf0\x9f\x99\x82",
    "e\xcc\x81 \xef\xac\x81 \xc2\xa0|"};

}  // namespace

std::string other_meaning(const Tokenizer& own, const Tokenizer& other) {
  for (int32_t id = 0; id < own.vocab_size(); ++id) {
    const std::string here = own.id_to_token(id), there = other.id_to_token(id);
    if (here != there)
      return cat("token ", id, " is '", here, "' here and ",
                 there.empty() ? "nothing" : cat("'", there, "'"), " there");
  }
  return "";
}

std::string other_cut(const Tokenizer& own, const Tokenizer& other) {
  for (const char* text : kProbes) {
    const auto here = own.encode(text, false), there = other.encode(text, false);
    if (here.ok() && there.ok() && *here != *there) return text;
  }
  return "";
}

}  // namespace braid::inline data
