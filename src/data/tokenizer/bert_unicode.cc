#include "data/tokenizer/bert_unicode.h"

#include <algorithm>
#include <iterator>

#include "data/tokenizer/bert_tables.h"
#include "data/tokenizer/unicode.h"

namespace braid::inline data {
namespace {

template <size_t kCount>
bool in_table(const BertRange (&table)[kCount], char32_t c) {
  const auto after =
      std::upper_bound(std::begin(table), std::end(table), c,
                       [](char32_t value, const BertRange& range) { return value < range.first; });
  return after != std::begin(table) && c <= std::prev(after)->last;
}

}  // namespace

bool is_bert_control(char32_t c) { return in_table(kBertControls, c); }

bool is_bert_blank(char32_t c) { return is_white_space(c) && !is_bert_control(c); }

bool is_bert_ideograph(char32_t c) { return in_table(kBertIdeographs, c); }

bool is_bert_punctuation(char32_t c) { return in_table(kBertPunctuation, c); }

bool is_bert_accent(char32_t c) { return in_table(kBertAccents, c); }

bool is_new_joiner(char32_t c) { return in_table(kNewJoiners, c); }

bool is_combining_mark(char32_t c) { return in_table(kCombiningMarks, c); }

}  // namespace braid::inline data
