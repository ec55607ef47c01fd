// Classes of characters as the normalizers and pre-tokenizers of BERT and of SentencePiece's models
// see them: by older and newer Unicode tables than the rest, which the generated header lists. Pure
// functions.
#pragma once

namespace braid::inline data {

// Control, format and private characters, and U+FFFD, that cleaning drops; U+0000 too.
bool is_bert_control(char32_t code_point);

// White space that cleaning makes a blank: what is no control character of it, and tab, line feed
// and carriage return.
bool is_bert_blank(char32_t code_point);

// CJK ideographs, which become words of their own.
bool is_bert_ideograph(char32_t code_point);

// ASCII punctuation and Unicode's.
bool is_bert_punctuation(char32_t code_point);

// Marks that strip_accents drops after NFD.
bool is_bert_accent(char32_t code_point);

// Characters newer than utf8proc's tables that join the character before them.
bool is_new_joiner(char32_t code_point);

// Marks that the normalizer StripAccents drops.
bool is_combining_mark(char32_t code_point);

}  // namespace braid::inline data
