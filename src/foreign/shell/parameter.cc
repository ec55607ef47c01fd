#include "foreign/shell/parameter.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/text.h"
#include "foreign/shell/tree.h"

namespace braid::inline foreign {
namespace {

constexpr int64_t kMostParts = 2000;  // of "{1..n}"

bool is_word_part(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// A parameter as "${...}" names it, and the operation behind it.
struct Parameter {
  std::string name, index, operation;
  bool counts = false, indirect = false;
};

Parameter split_parameter(const std::string& body) {
  Parameter out;
  size_t at = 0;
  if (body.size() > 1 && body[0] == '#' && body[1] != ':' && body[1] != '-')
    out.counts = true, ++at;
  if (body.size() > 1 && body[0] == '!') out.indirect = true, ++at;
  const size_t begin = at;
  if (at < body.size() && std::string_view("@*#?$!-").find(body[at]) != std::string_view::npos)
    ++at;
  else
    while (at < body.size() && is_word_part(body[at])) ++at;
  out.name = body.substr(begin, at - begin);
  if (at < body.size() && body[at] == '[') {
    const size_t close = body.find(']', at);
    if (close != std::string::npos) {
      out.index = body.substr(at + 1, close - at - 1);
      at = close + 1;
    }
  }
  out.operation = body.substr(at);
  return out;
}

std::string replaced_all(const std::string& text, const std::string& pattern, const std::string& by,
                         bool all) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    size_t length = 0;
    for (size_t n = text.size() - at; n > 0 && length == 0; --n)
      if (shell_matches(pattern, std::string_view(text).substr(at, n))) length = n;
    if (length == 0) {
      out += text[at++];
      continue;
    }
    out += by;
    at += length;
    if (!all) return out + text.substr(at);
  }
  return out;
}

std::string without_end(const std::string& text, const std::string& pattern, bool front,
                        bool longest) {
  for (size_t i = 0; i <= text.size(); ++i) {
    const size_t n = longest ? text.size() - i : i;
    const std::string_view part = front ? std::string_view(text).substr(0, n)
                                        : std::string_view(text).substr(text.size() - n);
    if (shell_matches(pattern, part))
      return front ? text.substr(n) : text.substr(0, text.size() - n);
  }
  return text;
}

class Expansion {
 public:
  Expansion(ShellVariables* variables, ShellExpander* expander, const ShellHost& host)
      : variables_(*variables), expander_(*expander), host_(host) {}

  ParameterValue value(const std::string& body) {
    Parameter p = split_parameter(body);
    if (p.name.empty()) return {{unknown_text(cat("${", body, "}"))}};
    if (p.indirect && !p.index.empty()) return {names(p.name), true, p.index == "*"};
    if (p.indirect) {
      const auto named = single(p.name, "");
      p.name = named ? known_text(*named).value_or("") : "";
      p.indirect = false;
    }
    const bool all = p.index == "@" || p.index == "*";
    if (all || p.name == "@" || p.name == "*") return of_list(p);
    const auto found = single(p.name, p.index);
    if (p.counts) return {{counted(found)}};
    return {{operated(p, found, body)}};
  }

 private:
  std::optional<std::string> single(const std::string& name, const std::string& index) {
    if (!index.empty()) return element(name, index);
    if (name == "#") return cat(variables_.arguments.size());
    if (name == "?") return cat(variables_.status);
    if (name == "$" || name == "!") return "4242";
    if (name == "-") return "";
    if (name == "0") return variables_.name;
    int64_t number = 0;
    if (parse_int(name, &number)) {
      if (number < 1 || number > static_cast<int64_t>(variables_.arguments.size()))
        return std::nullopt;
      return variables_.arguments[static_cast<size_t>(number - 1)];
    }
    const auto found = variables_.values.find(name);
    if (found != variables_.values.end()) return found->second;
    return variables_.arrays.count(name) > 0 ? element(name, "0") : std::nullopt;
  }

  std::optional<std::string> element(const std::string& name, const std::string& index) {
    const auto found = variables_.arrays.find(name);
    if (found == variables_.arrays.end()) {
      const auto value = variables_.values.find(name);
      if (index == "0" && value != variables_.values.end()) return value->second;
      return std::nullopt;
    }
    std::string place = index;
    if (!found->second.by_name) {
      const auto number = expander_.arithmetic(index);
      const auto size = static_cast<int64_t>(found->second.items.size());
      place = number ? cat(*number < 0 ? *number + size : *number) : index;
    } else {
      place = expander_.text(index);
    }
    const std::string* value = found->second.find(place);
    return value ? std::optional(*value) : std::nullopt;
  }

  std::vector<std::string> names(const std::string& name) {
    std::vector<std::string> out;
    for (const auto& [index, value] : variables_.arrays[name].items) out.push_back(index);
    return out;
  }

  ParameterValue of_list(const Parameter& p) {
    ParameterValue out;
    out.is_list = true;
    out.joined = p.name == "*" || p.index == "*";
    if (p.name == "@" || p.name == "*") {
      out.values = variables_.arguments;
    } else if (const auto found = variables_.arrays.find(p.name);
               found != variables_.arrays.end()) {
      for (const auto& [index, value] : found->second.items) out.values.push_back(value);
    } else if (const auto one = variables_.values.find(p.name); one != variables_.values.end()) {
      out.values = {one->second};
    } else if (p.operation.empty() && !p.counts) {
      host_.unset(cat(p.name, "[@]"));
    }
    if (p.counts) return {{cat(out.values.size())}};
    if (!p.operation.empty() && p.operation[0] == ':' && p.operation.size() > 1 &&
        std::string_view("-=+?").find(p.operation[1]) == std::string_view::npos) {
      out.values = slice(out.values, p);
    } else if (p.operation[0] == ':' || p.operation[0] == '-' || p.operation[0] == '+') {
      const bool uses_default = (p.operation.find('+') < 2) != out.values.empty();
      const std::string text = p.operation.substr(p.operation[0] == ':' ? 2 : 1);
      if (uses_default) out.values = expander_.fields(text);
    } else if (!p.operation.empty()) {
      for (std::string& value : out.values) value = changed(value, p.operation);
    }
    return out;
  }

  std::vector<std::string> slice(const std::vector<std::string>& values, const Parameter& p) {
    const auto [begin, length] = piece(p.operation);
    std::vector<std::string> out;
    const int64_t shift = p.name == "@" || p.name == "*" ? 1 : 0;  // "$0" is its first
    for (int64_t i = 0; i < static_cast<int64_t>(values.size()); ++i)
      if (i + shift >= begin && (length < 0 || i + shift < begin + length))
        out.push_back(values[static_cast<size_t>(i)]);
    return out;
  }

  // Begin and length of ":begin:length"; a length below zero is the rest.
  std::pair<int64_t, int64_t> piece(const std::string& operation) {
    const size_t colon = operation.find(':', 1);
    const auto begin =
        expander_.arithmetic(operation.substr(1, colon == std::string::npos ? colon : colon - 1));
    const auto length = colon == std::string::npos
                            ? std::optional<int64_t>(-1)
                            : expander_.arithmetic(operation.substr(colon + 1));
    return {begin.value_or(0), length.value_or(-1)};
  }

  std::string counted(const std::optional<std::string>& found) {
    const auto known = known_text(found.value_or(""));
    return known ? cat(known->size()) : unknown_text("${#...}");
  }

  std::string missing(const std::string& name) {
    if (!name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) != 0) return "";
    host_.unset(name);
    return cat(kUnsetMark, "$", name, kUnsetMark);
  }

  std::string operated(const Parameter& p, const std::optional<std::string>& found,
                       const std::string& body) {
    std::string operation = p.operation;
    if (operation.empty()) return found ? *found : missing(p.name);
    const bool empty_counts = operation.size() > 1 && operation[0] == ':' &&
                              std::string_view("-=+?").find(operation[1]) != std::string_view::npos;
    if (empty_counts) operation.erase(0, 1);
    const bool has =
        found && !(empty_counts && known_text(*found) == std::optional<std::string>(""));
    const std::string rest = operation.substr(1);
    switch (operation[0]) {
      case '-':
        return has ? *found : expander_.text(rest);
      case '=':
        if (!has) expander_.set(p.name, expander_.text(rest));
        return has ? *found : variables_.values[p.name];
      case '+':
        return has ? expander_.text(rest) : "";
      case '?':
        if (!has) host_.fail(cat(p.name, ": ", shown_text(expander_.text(rest))));
        return has ? *found : "";
      default:
        break;
    }
    const std::string value = found ? *found : missing(p.name);
    if (!known_text(value)) return unknown_text(cat("${", body, "}"));
    if (!found) return value;
    return changed(value, p.operation);
  }

  // "#pattern", "%pattern", "/pattern/by", "^^", ",,", ":begin:length".
  std::string changed(const std::string& value, const std::string& operation) {
    const bool twice = operation.size() > 1 && operation[1] == operation[0];
    const std::string rest = operation.substr(twice ? 2 : 1);
    switch (operation[0]) {
      case '#':
      case '%':
        return without_end(value, expander_.pattern(rest), operation[0] == '#', twice);
      case '/': {
        const size_t slash = rest.find('/');
        const std::string by = slash == std::string::npos ? "" : rest.substr(slash + 1);
        return replaced_all(value, expander_.pattern(rest.substr(0, slash)), expander_.text(by),
                            twice);
      }
      case '^':
      case ',': {
        std::string out = value;
        for (size_t i = 0; i < (twice ? out.size() : std::min<size_t>(1, out.size())); ++i)
          out[i] = static_cast<char>(operation[0] == '^'
                                         ? std::toupper(static_cast<unsigned char>(out[i]))
                                         : std::tolower(static_cast<unsigned char>(out[i])));
        return out;
      }
      case ':': {
        const auto [begin, length] = piece(operation);
        const auto size = static_cast<int64_t>(value.size());
        const int64_t first = std::clamp<int64_t>(begin < 0 ? size + begin : begin, 0, size);
        const int64_t count = length < 0 ? size - first : std::min(length, size - first);
        return value.substr(static_cast<size_t>(first), static_cast<size_t>(count));
      }
      default:
        return unknown_text(cat("${...", operation, "}"));
    }
  }

  ShellVariables& variables_;
  ShellExpander& expander_;
  const ShellHost& host_;
};

}  // namespace

ParameterValue expand_parameter(const std::string& body, ShellVariables* variables,
                                ShellExpander* expander, const ShellHost& host) {
  return Expansion(variables, expander, host).value(body);
}

void set_array(const std::string& name, std::string_view body, bool adds, ShellVariables* variables,
               ShellExpander* expander) {
  ShellArray added;
  added.by_name = variables->arrays.count(name) > 0 && variables->arrays[name].by_name;
  if (adds) added = variables->arrays[name];
  int64_t next = 0;
  for (const auto& [index, value] : added.items)
    if (int64_t number = 0; parse_int(index, &number)) next = std::max(next, number + 1);
  for (size_t at = 0; at < body.size();) {
    if (std::isspace(static_cast<unsigned char>(body[at])) != 0) {
      ++at;
    } else if (body[at] == '#') {
      at = std::min(body.find('\n', at), body.size());
    } else if (body.substr(at, 2) == "\\\n") {
      at += 2;
    } else {
      const size_t end = std::max(end_of_shell_word(body, at), at + 1);
      const std::string word(body.substr(at, end - at));
      at = end;
      const size_t close = word[0] == '[' ? word.find("]=") : std::string::npos;
      if (close != std::string::npos) {
        added.set(expander->text(word.substr(1, close - 1)),
                  expander->text(word.substr(close + 2)));
        continue;
      }
      for (const std::string& field : expander->fields(word)) added.set(cat(next++), field);
    }
  }
  variables->arrays[name] = std::move(added);
}

std::vector<std::string> brace_parts(std::string_view body) {
  std::vector<std::string> out;
  const size_t dots = body.find("..");
  int64_t first = 0, last = 0;
  if (dots != std::string_view::npos && parse_int(std::string(body.substr(0, dots)), &first) &&
      parse_int(std::string(body.substr(dots + 2)), &last)) {
    if (first > kMostParts * 1000 || last > kMostParts * 1000 ||
        std::llabs(last - first) > kMostParts)
      return out;
    for (int64_t i = first; first <= last ? i <= last : i >= last; i += first <= last ? 1 : -1)
      out.push_back(cat(i));
    return out;
  }
  size_t begin = 0;
  for (size_t i = 0; i < body.size(); ++i) {
    if (body[i] == '\\')
      ++i;
    else if (body[i] == '\'' || body[i] == '"')
      i = end_of_quotes(body, i) - 1;
    else if (body[i] == '{' || body[i] == '(')
      i = end_of_brackets(body, i) - 1;
    else if (body[i] == ',')
      out.emplace_back(body.substr(begin, i - begin)), begin = i + 1;
  }
  if (!out.empty()) out.emplace_back(body.substr(begin));
  return out;
}

bool shell_matches(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, tried = 0;
  while (true) {
    size_t length = 0;
    if (t < text.size() && p < pattern.size() && pattern[p] != '*') {
      const char c = pattern[p];
      if (c == '\\' && p + 1 < pattern.size()) {
        length = pattern[p + 1] == text[t] ? 2 : 0;
      } else if (c == '?') {
        length = 1;
      } else if (const size_t close = pattern.find(']', p + 2);
                 c == '[' && close != std::string_view::npos) {
        std::string_view set = pattern.substr(p + 1, close - p - 1);
        const bool without = set[0] == '!' || set[0] == '^';
        if (without) set.remove_prefix(1);
        bool found = false;
        for (size_t i = 0; i < set.size(); ++i) {
          const bool range = i + 2 < set.size() && set[i + 1] == '-';
          found |= range ? set[i] <= text[t] && text[t] <= set[i + 2] : set[i] == text[t];
          if (range) i += 2;
        }
        length = found != without ? close - p + 1 : 0;
      } else {
        length = c == text[t] ? 1 : 0;
      }
    }
    if (length > 0) {
      p += length, ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++, tried = t;
    } else if (t >= text.size() && p >= pattern.size()) {
      return true;
    } else if (star == std::string_view::npos || tried >= text.size()) {
      return false;
    } else {
      p = star + 1, t = ++tried;
    }
  }
}

}  // namespace braid::inline foreign
