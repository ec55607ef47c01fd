// A shell script as a tree of commands, in bash's grammar as launch scripts use it. Words are kept
// as written; what they expand to is foreign/shell/expand.h. Internal to foreign/. Pure.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace braid::inline foreign {

struct ShellNode;
using ShellTree = std::shared_ptr<const ShellNode>;

struct ShellRedirection {
  std::string op;        // "<", ">", ">>", "<<" (a document), "<<<", ">&", ...
  std::string target;    // the word, or the text of the document
  bool literal = false;  // a document whose end was quoted
  int descriptor = -1;   // the number before it; -1 = none
};

struct ShellNode {
  enum class Kind {
    kSimple,         // words
    kSequence,       // children, one after the other
    kAndOr,          // children joined by `words`: "&&" and "||"
    kPipeline,       // children
    kIf,             // children: condition, body, condition, body, ..., maybe a last body
    kWhile,          // children: condition, body
    kFor,            // words: name, then the list; children: body
    kArithmeticFor,  // words: begin, condition, step; children: body
    kCase,           // words: subject; patterns of each of the children
    kSubshell,       // children: one
    kFunction,       // words: name; children: body
    kTest,           // words between [[ and ]]
    kArithmetic,     // words: the expression between (( and ))
  };
  Kind kind = Kind::kSimple;
  int line = 0;
  std::string text;  // as written, for messages
  std::vector<std::string> words;
  std::vector<ShellTree> children;
  std::vector<std::vector<std::string>> patterns;
  std::vector<ShellRedirection> redirections;
  bool negated = false;         // "!"
  bool until = false;           // of kWhile
  bool over_arguments = false;  // of kFor without "in"
};

// Errors: a construct without its end or nested too deeply, with its line. Quotes and brackets
// without an end reach to the end of the text.
Result<ShellTree> parse_shell(std::string_view text);

// The place after the word that begins at `at`: quotes, "$(...)", "${...}" and the like are parts.
size_t end_of_shell_word(std::string_view text, size_t at);

// The place after the bracket that closes the one at `at`, quotes skipped; the end of the text if
// none does.
size_t end_of_brackets(std::string_view text, size_t at);

// The place after the quote that closes the one at `at`.
size_t end_of_quotes(std::string_view text, size_t at);

}  // namespace braid::inline foreign
