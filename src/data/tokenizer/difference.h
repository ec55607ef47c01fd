// Whether two tokenizers give ids one meaning, judged by what they say, not by their files.
// Thread-safe.
#pragma once

#include <string>

#include "data/tokenizer/tokenizer.h"

namespace braid::inline data {

// The first id of `own` that stands for another token in `other`, for people: "token 17 is 'a' here
// and 'b' there"; "" where every token of `own` is the same in `other`, which may have more.
std::string other_meaning(const Tokenizer& own, const Tokenizer& other);

// The first of a few texts that both encode, but with other tokens; "" for none. REQUIRES:
// other_meaning() found nothing.
std::string other_cut(const Tokenizer& own, const Tokenizer& other);

}  // namespace braid::inline data
