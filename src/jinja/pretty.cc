// The filter pprint: a value as Python's pprint.pformat writes it in 80 columns. What fits into its
// line stands there; otherwise every item of a list or dictionary gets a line, and a text is cut
// behind its lines and blanks into several in quotes.
#include <algorithm>

#include "base/text.h"
#include "jinja/arguments.h"
#include "jinja/builtins.h"
#include "jinja/compare.h"
#include "jinja/print.h"
#include "jinja/text.h"

namespace braid::jinja {
namespace {

constexpr int64_t kColumns = 80;

// Of types that have no order among each other, in that of their names.
int type_rank(const Value& value) {
  if (value.is_none()) return 0;
  if (value.is_number()) return 1;
  return value.is_text() ? 2 : 3;
}

std::vector<Dict::Item> sorted_items(const Dict& dict, Budget& budget) {
  std::vector<Dict::Item> items = dict.items();
  std::stable_sort(items.begin(), items.end(), [&](const auto& a, const auto& b) {
    const Result<bool> before = less(a.first, b.first, budget);
    return before.ok() ? *before : type_rank(a.first) < type_rank(b.first);
  });
  return items;
}

int64_t width_of(std::string_view text) { return static_cast<int64_t>(count_code_points(text)); }

// A text as words, each with the blanks that follow it.
std::vector<std::string> words_with_blanks(std::string_view text) {
  const std::u32string points = to_code_points(text);
  std::vector<std::string> out;
  for (size_t at = 0; at < points.size();) {
    size_t end = at;
    while (end < points.size() && !is_space(points[end])) ++end;
    while (end < points.size() && is_space(points[end])) ++end;
    out.push_back(to_utf8(std::u32string_view(points).substr(at, end - at)));
    at = end;
  }
  return out;
}

// Columns from the left, and those that must stay free behind the value for what closes it.
struct Room {
  int64_t indent = 0, behind = 0;
};

class PrettyWriter {
 public:
  explicit PrettyWriter(Budget& budget) : budget_(budget) {}

  Status write(const Value& value, Room room, bool outermost) {
    BRAID_TRY(budget_.enter());
    BRAID_ASSIGN(const std::string line, in_one_line(value));
    const bool fits = width_of(line) <= kColumns - room.indent - room.behind;
    if (fits || !can_be_cut(value)) {
      BRAID_TRY(add(line));
    } else if (value.is_text()) {
      BRAID_TRY(write_text(value.text(), room, outermost));
    } else if (value.is_dict()) {
      BRAID_TRY(write_dict(value.dict(), room));
    } else {
      BRAID_TRY(write_sequence(value, room));
    }
    budget_.leave();
    return ok_status();
  }

  std::string take() { return std::move(out_); }

 private:
  static bool can_be_cut(const Value& value) {
    return value.is_sequence() || value.is_dict() ||
           (value.is_text() && !value.is_safe() && !value.text().empty());
  }

  Status add(const std::string& text) {
    BRAID_TRY(budget_.grow(out_.size(), text.size()));
    out_ += text;
    return ok_status();
  }

  // As repr() writes it, the keys of dictionaries sorted.
  Result<std::string> in_one_line(const Value& value) {
    if (!value.is_sequence() && !value.is_dict()) return repr(value, budget_);
    BRAID_TRY(budget_.enter());
    std::string out;
    const auto append = [&](const std::string& before, const Value& item) -> Status {
      BRAID_ASSIGN(const std::string text, in_one_line(item));
      BRAID_TRY(budget_.grow(out.size(), before.size() + text.size() + 2));
      out += before + text;
      return ok_status();
    };
    if (value.is_dict()) {
      for (const auto& [key, item] : sorted_items(value.dict(), budget_)) {
        BRAID_TRY(append(out.empty() ? "{" : ", ", key));
        BRAID_TRY(append(": ", item));
      }
      out = out.empty() ? "{}" : out + "}";
    } else {
      for (const Value& item : value.items())
        BRAID_TRY(append(out.empty() ? (value.is_tuple() ? "(" : "[") : ", ", item));
      if (out.empty()) out = value.is_tuple() ? "(" : "[";
      out += value.is_tuple() ? (value.items().size() == 1 ? ",)" : ")") : "]";
    }
    budget_.leave();
    return out;
  }

  static std::string next_line(const Room& room) {
    return "\n" + std::string(static_cast<size_t>(room.indent), ' ');
  }

  Status write_dict(const Dict& dict, const Room& room) {
    const Room inner{room.indent + 1, room.behind + 1};
    BRAID_TRY(add("{"));
    const std::vector<Dict::Item> items = sorted_items(dict, budget_);
    for (size_t i = 0; i < items.size(); ++i) {
      BRAID_ASSIGN(const std::string key, in_one_line(items[i].first));
      BRAID_TRY(add((i > 0 ? "," + next_line(inner) : "") + key + ": "));
      BRAID_TRY(write(items[i].second,
                      {inner.indent + width_of(key) + 2, i + 1 < items.size() ? 1 : inner.behind},
                      false));
    }
    return add("}");
  }

  Status write_sequence(const Value& value, const Room& room) {
    const std::vector<Value>& items = value.items();
    const std::string end = value.is_tuple() ? (items.size() == 1 ? ",)" : ")") : "]";
    const Room inner{room.indent + 1, room.behind + width_of(end)};
    BRAID_TRY(add(value.is_tuple() ? "(" : "["));
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) BRAID_TRY(add("," + next_line(inner)));
      BRAID_TRY(write(items[i], {inner.indent, i + 1 < items.size() ? 1 : inner.behind}, false));
    }
    return add(end);
  }

  // The outermost text of several pieces stands in brackets.
  Status write_text(const std::string& text, Room room, bool outermost) {
    if (outermost) room = {room.indent + 1, room.behind + 1};
    const std::vector<std::string> pieces = cut(text, room);
    if (pieces.size() == 1) return add(pieces[0]);
    BRAID_TRY(add(outermost ? "(" : ""));
    for (size_t i = 0; i < pieces.size(); ++i)
      BRAID_TRY(add((i > 0 ? next_line(room) : "") + pieces[i]));
    return add(outermost ? ")" : "");
  }

  static std::vector<std::string> cut(const std::string& text, const Room& room) {
    const int64_t width = kColumns - room.indent;
    std::vector<std::string> out;
    const std::vector<std::string> lines = split_lines(text, true);
    for (size_t i = 0; i < lines.size(); ++i) {
      const bool last_line = i + 1 == lines.size();
      if (width_of(jinja::quoted(lines[i])) <= width - (last_line ? room.behind : 0)) {
        out.push_back(jinja::quoted(lines[i]));
        continue;
      }
      const std::vector<std::string> words = words_with_blanks(lines[i]);
      std::string piece;
      for (size_t j = 0; j < words.size(); ++j) {
        const bool last = last_line && j + 1 == words.size();
        const bool fits =
            width_of(jinja::quoted(piece + words[j])) <= width - (last ? room.behind : 0);
        if (!fits && !piece.empty()) out.push_back(jinja::quoted(piece));
        piece = fits ? piece + words[j] : words[j];
      }
      if (!piece.empty()) out.push_back(jinja::quoted(piece));
    }
    return out;
  }

  Budget& budget_;
  std::string out_;
};

}  // namespace

Result<Value> pprint_filter(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("pprint", arguments, {"value"}, 1));
  PrettyWriter writer(budget);
  BRAID_TRY(writer.write(bound.at(0), {}, true));
  return Value(writer.take());
}

}  // namespace braid::jinja
