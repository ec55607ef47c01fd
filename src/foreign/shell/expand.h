// Variables of a shell script and what words expand to. Text that is not known carries its source
// between marks: the output of a command that is not run, and the name of a variable that nobody
// set. Internal to foreign/. Pure but for the caller's variables.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace braid::inline foreign {

inline constexpr char kUnknownMark = '\x01';  // on both sides of "$(command)"
inline constexpr char kUnsetMark = '\x02';    // on both sides of "$NAME"

std::string unknown_text(const std::string& source);
// Without marks, sources as written.
std::string shown_text(std::string_view text);
// What the shell would have, unset variables being empty; nothing where the text is not known.
std::optional<std::string> known_text(std::string_view text);

struct ShellArray {
  bool by_name = false;                                    // declare -A
  std::vector<std::pair<std::string, std::string>> items;  // index and value, in order
  std::string* find(const std::string& index);
  void set(const std::string& index, const std::string& value);
};

struct ShellVariables {
  std::map<std::string, std::string> values;
  std::map<std::string, ShellArray> arrays;
  std::vector<std::string> arguments;
  std::string name;  // "$0"
  int status = 0;
};

// What an expansion asks of the reader.
struct ShellHost {
  std::function<std::string(const std::string& script)> output;  // of "$(script)", maybe unknown
  std::function<void(const std::string& name)> unset;            // a variable without a value
  std::function<void(const std::string& what)> fail;             // "${NAME:?what}" ends the script
  std::function<void(const std::string& what)> assume;           // an expansion that is not known
};

class ShellExpander {
 public:
  ShellExpander(ShellVariables* variables, const ShellHost* host)
      : variables_(variables), host_(host) {}
  // The fields of a word: braces, parameters, commands, arithmetic, splitting, quotes.
  std::vector<std::string> fields(const std::string& word);
  // As one text, without splitting: an assignment, a subject of `case`, a side of a test.
  std::string text(const std::string& word);
  // As a pattern: what was quoted stands for itself.
  std::string pattern(const std::string& word);
  // Text of a document or within double quotes.
  std::string document(const std::string& body);
  std::optional<int64_t> arithmetic(const std::string& expression);
  // NAME=VALUE, NAME+=VALUE, NAME=(...), NAME[i]=VALUE; false where the word is none.
  bool assign(const std::string& word);
  void set(const std::string& name, const std::string& value);

 private:
  class Word;
  ShellVariables* variables_;
  const ShellHost* host_;
  int depth_ = 0;
};

// As bash matches a pattern with a whole text: *, ?, [...] and, escaped by a backslash, any
// character.
bool shell_matches(std::string_view pattern, std::string_view text);

}  // namespace braid::inline foreign
