#include "plan/foreign_text.h"

#include <cctype>

#include "base/text.h"
#include "base/yaml.h"

namespace braid::foreign {
namespace {

bool is_name_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Replaces $NAME and ${NAME} by what the script assigned.
std::string replace_variables(const std::string& word, const ForeignKeys& variables) {
  std::string out;
  for (size_t i = 0; i < word.size();) {
    if (word[i] != '$') {
      out += word[i++];
      continue;
    }
    const bool braces = i + 1 < word.size() && word[i + 1] == '{';
    const size_t begin = i + (braces ? 2 : 1);
    size_t end = begin;
    while (end < word.size() && is_name_char(word[end])) ++end;
    const auto found = variables.find(word.substr(begin, end - begin));
    const bool closed = !braces || (end < word.size() && word[end] == '}');
    if (found == variables.end() || !closed) {
      out += word[i++];
      continue;
    }
    out += found->second;
    i = end + (braces ? 1 : 0);
  }
  return out;
}

// "NAME=value" with a plain name: an assignment of the script rather than a key of the trainer.
bool is_assignment(const std::string& word, size_t* equals) {
  *equals = word.find('=');
  if (*equals == std::string::npos || *equals == 0) return false;
  for (size_t i = 0; i < *equals; ++i)
    if (!is_name_char(word[i])) return false;
  return true;
}

// Splits a text at blanks; quotes group, backslash-newline joins, '#' at a word's start comments.
std::vector<std::string> raw_words(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool inside = false;
  char quote = 0;
  const auto finish = [&] {
    if (inside) words.push_back(word);
    word.clear();
    inside = false;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0) {
      if (c == quote)
        quote = 0;
      else
        word += c;
    } else if (c == '\'' || c == '"') {
      quote = c;
      inside = true;
    } else if (c == '\\' && i + 1 < text.size()) {
      const char next = text[++i];
      if (next != '\n' && next != '\r') word += next, inside = true;
    } else if (std::isspace(static_cast<unsigned char>(c))) {
      finish();
    } else if (c == '#' && !inside) {
      while (i + 1 < text.size() && text[i + 1] != '\n') ++i;
    } else {
      word += c;
      inside = true;
    }
  }
  finish();
  return words;
}

void collect_leaves(const YamlNode& node, const std::string& path, ForeignKeys* keys) {
  if (node.kind == YamlNode::Kind::kScalar) (*keys)[path] = node.scalar;
  if (node.kind == YamlNode::Kind::kNull) (*keys)[path] = "null";
  for (const auto& [name, value] : node.map)
    collect_leaves(value, path.empty() ? name : cat(path, ".", name), keys);
}

bool is_flag(const std::string& word) { return word.size() > 2 && word.rfind("--", 0) == 0; }

}  // namespace

std::vector<std::string> shell_words(std::string_view text) {
  ForeignKeys variables;
  std::vector<std::string> words;
  for (const std::string& raw : raw_words(text)) {
    const std::string word = replace_variables(raw, variables);
    size_t equals = 0;
    if (is_assignment(word, &equals)) variables[word.substr(0, equals)] = word.substr(equals + 1);
    words.push_back(word);
  }
  return words;
}

Result<ForeignKeys> yaml_keys(std::string_view text, const std::string& where) {
  BRAID_ASSIGN(const YamlNode root, parse_yaml(text, where));
  if (root.kind != YamlNode::Kind::kMap)
    return invalid_input(cat(where, ": a configuration must be a map of keys"));
  ForeignKeys keys;
  collect_leaves(root, "", &keys);
  return keys;
}

ForeignKeys assignment_keys(const std::vector<std::string>& words) {
  ForeignKeys keys;
  for (const std::string& word : words) {
    const size_t begin = word.find_first_not_of('+');
    const size_t equals = word.find('=');
    if (begin == std::string::npos || equals == std::string::npos || equals <= begin) continue;
    keys[word.substr(begin, equals - begin)] = word.substr(equals + 1);
  }
  return keys;
}

ForeignKeys flag_keys(const std::vector<std::string>& words) {
  ForeignKeys keys;
  for (size_t i = 0; i < words.size(); ++i) {
    if (!is_flag(words[i])) continue;
    const std::string flag = words[i].substr(2);
    const size_t equals = flag.find('=');
    if (equals != std::string::npos) {
      keys[flag.substr(0, equals)] = flag.substr(equals + 1);
    } else if (i + 1 < words.size() && !is_flag(words[i + 1])) {
      keys[flag] = words[i + 1];
      ++i;
    } else {
      keys[flag] = "true";
    }
  }
  return keys;
}

bool looks_like_yaml(std::string_view text) {
  for (const std::string& line : split(text, '\n')) {
    const std::string body(trim(line));
    if (body.empty() || body[0] == '#') continue;
    const size_t colon = body.find(':');
    const size_t other = body.find_first_of("= \\");
    return colon != std::string::npos && colon < other;
  }
  return false;
}

}  // namespace braid::foreign
