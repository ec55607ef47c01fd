// The filter urlize: addresses in a text become links of HTML, with jinja2's rules of what an
// address is.
#include <algorithm>
#include <optional>
#include <set>

#include "base/text.h"
#include "jinja/arguments.h"
#include "jinja/builtins.h"
#include "jinja/markup.h"
#include "jinja/print.h"
#include "jinja/text.h"

namespace braid::jinja {
namespace {

using View = std::u32string_view;

// Small letters, as a regular expression of Python that ignores case compares ASCII's.
char32_t small(char32_t c) {
  if (c >= 'A' && c <= 'Z') return c - 'A' + 'a';
  if (c == 0x130 || c == 0x131) return 'i';
  if (c == 0x17f) return 's';
  return c == 0x212a ? 'k' : c;
}

bool all_of(View text, bool (*is)(char32_t)) { return std::all_of(text.begin(), text.end(), is); }
bool is_small_letter(char32_t c) { return c >= 'a' && c <= 'z'; }
bool is_label(char32_t c) { return is_word(c) || c == '%' || c == '-'; }
bool is_hex(char32_t c) { return is_decimal(c) || (c >= 'a' && c <= 'f'); }
bool is_within(size_t size, size_t least, size_t most) { return size >= least && size <= most; }

// Removes a beginning.
bool take(View& text, View beginning) {
  if (text.substr(0, beginning.size()) != beginning) return false;
  text.remove_prefix(beginning.size());
  return true;
}

// A port, a path, a query or a fragment, or nothing.
bool is_rest(View text) {
  if (take(text, U":")) {
    size_t digits = 0;
    while (digits < text.size() && is_decimal(text[digits])) ++digits;
    if (!is_within(digits, 1, 5)) return false;
    text.remove_prefix(digits);
  }
  return text.empty() || text[0] == '/' || text[0] == '?' || text[0] == '#';
}

std::vector<View> labels_of(View host) {
  std::vector<View> out;
  for (size_t dot; (dot = host.find('.')) != View::npos; host.remove_prefix(dot + 1))
    out.push_back(host.substr(0, dot));
  out.push_back(host);
  return out;
}

bool is_four_numbers(const std::vector<View>& labels) {
  return labels.size() == 4 && std::all_of(labels.begin(), labels.end(), [](View label) {
           return is_within(label.size(), 1, 3) && all_of(label, is_decimal);
         });
}

// Behind a scheme or "www.": any name of a top domain.
bool is_named_host(const std::vector<View>& labels) {
  View top = labels.back();
  const bool letters = is_within(top.size(), 2, 63) && all_of(top, is_small_letter);
  const bool coded = take(top, U"xn--") && is_within(top.size(), 2, 59) &&
                     all_of(top, [](char32_t c) { return is_word(c) || c == '%'; });
  return (letters || coded) && std::all_of(labels.begin(), labels.end() - 1, [](View label) {
           return !label.empty() && all_of(label, is_label);
         });
}

// Without one: only the usual top domains.
bool is_usual_host(const std::vector<View>& labels) {
  const View usual[] = {U"com", U"net", U"int", U"edu", U"gov", U"org", U"info", U"mil"};
  return labels.size() > 1 &&
         std::find(std::begin(usual), std::end(usual), labels.back()) != std::end(usual) &&
         std::all_of(labels.begin(), labels.end() - 1, [](View label) {
           return is_within(label.size(), 2, 63) && all_of(label, is_label);
         });
}

// An address of version 6 in brackets, and what follows it.
bool is_bracketed(View text) {
  const size_t end = text.find(']');
  if (!take(text, U"[") || end == View::npos || !is_rest(text.substr(end))) return false;
  text = text.substr(0, end - 1);
  int groups = 0;
  for (; !text.empty() || groups < 3; ++groups) {
    size_t digits = 0;
    while (digits < text.size() && digits < 4 && is_hex(text[digits])) ++digits;
    text.remove_prefix(digits);
    const bool colon = take(text, U":");
    if (!colon && (groups < 2 || (digits == 0 && !text.empty()))) return false;
  }
  return groups <= 8;
}

bool is_web_address(const std::u32string& word) {
  std::u32string folded = word;
  std::transform(folded.begin(), folded.end(), folded.begin(), small);
  View text = folded;
  const bool scheme = take(text, U"https://") || take(text, U"http://");
  if (scheme && is_bracketed(text)) return true;
  const auto host = [](View from) { return from.substr(0, from.find_first_of(U":/?#")); };
  const bool rest = is_rest(text.substr(host(text).size()));
  const std::vector<View> labels = labels_of(host(text));
  if (scheme) return rest && (is_named_host(labels) || is_four_numbers(labels));
  if (rest && is_usual_host(labels)) return true;
  return rest && take(text, U"www.") && is_named_host(labels_of(host(text)));
}

bool is_mail_address(const std::u32string& word) {
  const size_t at = word.rfind('@');
  if (at == std::u32string::npos || at == 0) return false;
  const View domain = View(word).substr(at + 1);
  const size_t dot = domain.rfind('.');
  if (dot == View::npos || dot == 0 || dot + 1 == domain.size()) return false;
  return is_word(domain[0]) && all_of(domain.substr(dot + 1), is_word) &&
         all_of(domain.substr(1, dot - 1),
                [](char32_t c) { return is_word(c) || c == '.' || c == '-'; });
}

size_t count_of(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; at += part.size())
    ++count;
  return count;
}

// A word without the brackets before it and the brackets and marks behind it.
struct Word {
  std::string head, middle, tail;
};

Word parted(const std::string& word) {
  const auto has = [&](size_t at, std::string_view part) {
    return word.compare(at, part.size(), part) == 0;
  };
  size_t begin = 0, end = word.size();
  while (begin < word.size() && (word[begin] == '(' || word[begin] == '<' || has(begin, "&lt;")))
    begin += word[begin] == '&' ? 4 : 1;
  while (end > begin) {
    const bool bracket = end - begin >= 4 && has(end - 4, "&gt;");
    if (!bracket && std::string_view(")>.,").find(word[end - 1]) == std::string_view::npos) break;
    end -= bracket ? 4 : 1;
  }
  Word out{word.substr(0, begin), word.substr(begin, end - begin), word.substr(end)};
  for (const auto& [open, close] :
       {std::pair("(", ")"), std::pair("<", ">"), std::pair("&lt;", "&gt;")}) {
    const size_t opened = count_of(out.middle, open);
    if (opened <= count_of(out.middle, close)) continue;
    for (size_t n = std::min(opened, count_of(out.tail, close)); n > 0; --n) {
      const size_t length = out.tail.find(close) + std::string_view(close).size();
      out.middle += out.tail.substr(0, length);
      out.tail.erase(0, length);
    }
  }
  return out;
}

struct LinkOptions {
  std::optional<int64_t> most;  // characters of a link's text
  std::string attributes;
  std::vector<std::string> schemes;
};

std::string link(const std::string& address, const std::string& attributes,
                 const std::string& text) {
  return cat("<a href=\"", address, "\"", attributes, ">", text, "</a>");
}

std::string shortened(const std::string& text, const std::optional<int64_t>& most) {
  const auto length = static_cast<int64_t>(count_code_points(text));
  if (!most || length <= *most) return text;
  const int64_t end = *most < 0 ? std::max<int64_t>(0, length + *most) : *most;
  return text.substr(0, byte_offset(text, static_cast<size_t>(end))) + "...";
}

std::string linked(const std::string& word, const LinkOptions& options) {
  const std::u32string points = to_code_points(word);
  const auto begins = [&](const char* with) { return word.rfind(with, 0) == 0; };
  if (is_web_address(points)) {
    const bool whole = begins("https://") || begins("http://");
    return link((whole ? "" : "https://") + word, options.attributes,
                shortened(word, options.most));
  }
  if (begins("mailto:") && is_mail_address(to_code_points(word.substr(7))))
    return link(word, "", word.substr(7));
  if (!begins("www.") && !begins("@") && word.find(':') == std::string::npos &&
      is_mail_address(points))
    return link("mailto:" + word, "", word);
  std::string out = word;
  for (const std::string& scheme : options.schemes)
    if (out != scheme && out.rfind(scheme, 0) == 0) out = link(out, options.attributes, out);
  return out;
}

bool is_scheme(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return false;
  const std::u32string name = to_code_points(text.substr(0, colon));
  const std::string slashes = text.substr(colon + 1);
  return name.size() >= 2 && (slashes.empty() || slashes == "/" || slashes == "//") &&
         all_of(name, [](char32_t c) { return is_word(c) || c == '.' || c == '+' || c == '-'; });
}

Result<LinkOptions> link_options(const Bound& bound, Budget& budget) {
  LinkOptions out;
  if (bound.given(1)) {
    BRAID_ASSIGN(out.most, bound.integer(1, 0));
  }
  std::set<std::string> relations = {"noopener"};
  if (bound.truth(2, false)) relations.insert("nofollow");
  if (bound.truth(4, false)) {
    BRAID_ASSIGN(const std::string given, bound.text(4));
    for (const std::string& one : split_words(given)) relations.insert(one);
  }
  out.attributes = cat(" rel=\"", escaped(join({relations.begin(), relations.end()}, " ")), "\"");
  if (bound.truth(3, false)) {
    BRAID_ASSIGN(const Value target, escape(bound.at(3), budget));
    out.attributes += cat(" target=\"", target.text(), "\"");
  }
  if (!bound.given(5)) return out;
  BRAID_ASSIGN(const std::vector<Value> schemes, iterate(bound.at(5), budget));
  for (const Value& scheme : schemes) {
    if (!scheme.is_text() || !is_scheme(scheme.text()))
      return invalid_input("one of extra_schemes is not a valid URI scheme prefix");
    out.schemes.push_back(scheme.text());
  }
  return out;
}

}  // namespace

Result<Value> urlize_filter(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(
      const Bound bound,
      Bound::bind("urlize", arguments,
                  {"value", "trim_url_limit", "nofollow", "target", "rel", "extra_schemes"}, 1));
  BRAID_ASSIGN(const LinkOptions options, link_options(bound, budget));
  BRAID_ASSIGN(const Value whole, escape(bound.at(0), budget));
  const std::u32string points = to_code_points(whole.text());
  std::string out;
  for (size_t at = 0; at < points.size();) {
    size_t end = at;
    while (end < points.size() && is_space(points[end]) == is_space(points[at])) ++end;
    const std::string word = to_utf8(View(points).substr(at, end - at));
    std::string piece = word;
    if (!is_space(points[at])) {
      const Word parts = parted(word);
      piece = parts.head + linked(parts.middle, options) + parts.tail;
    }
    BRAID_TRY(budget.grow(out.size(), piece.size()));
    out += piece;
    at = end;
  }
  return Value(std::move(out));
}

}  // namespace braid::jinja
