#include "data/json_array.h"

#include "base/text.h"

namespace braid::inline data {
namespace {

bool is_json_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

Status broken(size_t byte, const char* what) {
  return invalid_input(cat("byte ", byte, " of the JSON array: ", what));
}

// Reads one element: texts are skipped as a whole, brackets are counted.
class ElementScanner {
 public:
  explicit ElementScanner(std::string_view text) : text_(text) {}

  size_t at() const { return at_; }
  bool ended() const { return at_ >= text_.size(); }
  char here() const { return text_[at_]; }
  void step() { ++at_; }
  void skip_blanks() {
    while (!ended() && is_json_blank(here())) ++at_;
  }

  // Up to the ',' or ']' behind the element; line breaks between its parts become blanks.
  Result<std::string> element() {
    std::string out;
    size_t depth = 0;
    while (!ended()) {
      const char c = here();
      if (depth == 0 && (c == ',' || c == ']')) return out;
      if (c == '"') {
        BRAID_TRY(copy_text(out));
        continue;
      }
      if (c == '[' || c == '{') ++depth;
      if (c == ']' || c == '}') {
        if (depth == 0) return broken(at_, "a bracket that nothing opened");
        --depth;
      }
      out += c == '\n' || c == '\r' ? ' ' : c;
      ++at_;
    }
    return broken(at_, "the file ends inside of it");
  }

 private:
  Status copy_text(std::string& out) {
    const size_t begin = at_++;
    while (!ended() && here() != '"') {
      if (here() == '\\') ++at_;
      if (ended() || here() == '\n') return broken(at_, "a line break inside of a text");
      ++at_;
    }
    if (ended()) return broken(begin, "a text without an end");
    ++at_;
    out.append(text_.substr(begin, at_ - begin));
    return ok_status();
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Status for_each_array_element(std::string_view text,
                              const std::function<Status(std::string_view element)>& visit) {
  ElementScanner scanner(text);
  scanner.skip_blanks();
  if (scanner.ended() || scanner.here() != '[') return broken(scanner.at(), "'[' is missing");
  scanner.step();
  scanner.skip_blanks();
  const bool empty = !scanner.ended() && scanner.here() == ']';
  while (!empty) {
    const size_t begin = scanner.at();
    BRAID_ASSIGN(const std::string element, scanner.element());
    if (trim(element).empty()) return broken(begin, "an element is missing");
    BRAID_TRY(visit(element));
    if (scanner.here() == ']') break;
    scanner.step();
  }
  scanner.step();
  scanner.skip_blanks();
  return scanner.ended() ? ok_status() : broken(scanner.at(), "more behind its end");
}

}  // namespace braid::inline data
