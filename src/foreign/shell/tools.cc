// Small programs that scripts pipe text through, on text that is known.
#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "foreign/shell/arithmetic.h"
#include "foreign/shell/reader.h"

namespace braid::inline foreign {
namespace {

using Words = std::vector<std::string>;
using Output = std::optional<std::string>;

constexpr uint64_t kLongestSequence = 10000;

std::string ended(const Words& lines) {
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

// The number of "-n 3", "-n3" or "-3"; 10 without one.
std::optional<int64_t> line_count(const Words& words) {
  int64_t count = 10;
  for (size_t i = 1; i < words.size(); ++i) {
    std::string text = words[i];
    if (text == "-n" && i + 1 < words.size())
      text = words[++i];
    else if (text.rfind("-n", 0) == 0)
      text = text.substr(2);
    else if (text.size() > 1 && text[0] == '-')
      text = text.substr(1);
    else
      return std::nullopt;
    if (!parse_int(text, &count) || count < 0) return std::nullopt;
  }
  return count;
}

Output ends_of(const Words& words, const std::string& input) {
  const auto count = line_count(words);
  if (!count) return std::nullopt;
  Words lines = shell_lines(input);
  const auto kept = std::min<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(lines.size()), *count);
  if (words[0] == "head") return ended({lines.begin(), lines.begin() + kept});
  return ended({lines.end() - kept, lines.end()});
}

Output counted(const Words& words, const std::string& input) {
  if (words.size() != 2) return std::nullopt;
  if (words[1] == "-l") return cat(std::count(input.begin(), input.end(), '\n'), "\n");
  if (words[1] == "-w") return cat(shell_fields(input, " \t\n").size(), "\n");
  if (words[1] == "-c") return cat(input.size(), "\n");
  return std::nullopt;
}

// The characters of a set of tr: "a-z", "\n", classes left out.
std::optional<std::string> character_set(const std::string& text) {
  std::string out;
  if (text.find("[:") != std::string::npos) return std::nullopt;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '\\' && i + 1 < text.size()) {
      c = text[++i];
      c = c == 'n' ? '\n' : c == 't' ? '\t' : c;
    } else if (i + 2 < text.size() && text[i + 1] == '-') {
      for (int each = text[i]; each <= text[i + 2]; ++each) out += static_cast<char>(each);
      i += 2;
      continue;
    }
    out += c;
  }
  return out;
}

Output translated(const Words& words, const std::string& input) {
  if (words.size() != 3) return std::nullopt;
  const bool removes = words[1] == "-d";
  const auto from = character_set(words[removes ? 2 : 1]),
             to = character_set(removes ? "x" : words[2]);
  if (!from || !to || to->empty() || (!removes && words[1][0] == '-')) return std::nullopt;
  std::string out;
  for (const char c : input) {
    const size_t at = from->find(c);
    if (at == std::string::npos)
      out += c;
    else if (!removes)
      out += (*to)[std::min(at, to->size() - 1)];
  }
  return out;
}

Output cut_fields(const Words& words, const std::string& input) {
  std::string separator = "\t", field;
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string option = words[i].substr(0, 2);
    const std::string value = words[i].size() > 2    ? words[i].substr(2)
                              : i + 1 < words.size() ? words[++i]
                                                     : "";
    if (option == "-d") separator = value;
    if (option == "-f") field = value;
    if (option != "-d" && option != "-f") return std::nullopt;
  }
  int64_t number = 0;
  if (!parse_int(field, &number) || number < 1 || separator.size() != 1) return std::nullopt;
  Words out;
  for (const std::string& line : shell_lines(input)) {
    const Words parts = split(line, separator[0]);
    const auto at = static_cast<size_t>(number - 1);
    out.push_back(parts.size() == 1 ? line : at < parts.size() ? parts[at] : "");
  }
  return ended(out);
}

Output sequence_of(const Words& words) {
  int64_t first = 1, step = 1, last = 0;
  const bool read =
      words.size() == 2   ? parse_int(words[1], &last)
      : words.size() == 3 ? parse_int(words[1], &first) && parse_int(words[2], &last)
      : words.size() == 4
          ? parse_int(words[1], &first) && parse_int(words[2], &step) && parse_int(words[3], &last)
          : false;
  if (!read || step == 0) return std::nullopt;
  if (step > 0 ? last < first : last > first) return "";
  // Without a sign: the ends may be farther apart than a number with one can say.
  const auto from = static_cast<uint64_t>(first), to = static_cast<uint64_t>(last);
  const uint64_t span = step > 0 ? to - from : from - to;
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  if (span / stride > kLongestSequence) return std::nullopt;
  std::string out;
  for (uint64_t k = 0; k <= span / stride; ++k)
    out += cat(static_cast<int64_t>(from + k * static_cast<uint64_t>(step)), "\n");
  return out;
}

Output name_part_of(const Words& words) {
  if (words.size() < 2) return std::nullopt;
  std::string path = words[1];
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const size_t slash = path.rfind('/');
  if (words[0] == "dirname")
    return cat(slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash), "\n");
  std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  const std::string end = words.size() > 2 ? words[2] : "";
  if (!end.empty() && name.size() > end.size() &&
      name.compare(name.size() - end.size(), end.size(), end) == 0)
    name.resize(name.size() - end.size());
  return name + "\n";
}

Output expression(const Words& words) {
  const auto value = shell_arithmetic(join(Words(words.begin() + 1, words.end()), " "),
                                      [](const std::string&) { return std::nullopt; });
  return value ? Output(cat(*value, "\n")) : std::nullopt;
}

// awk '{print $N}', the one program that launch scripts write.
Output printed_field(const Words& words, const std::string& input) {
  std::string separators = " \t", program;
  for (size_t i = 1; i < words.size(); ++i) {
    if (words[i] == "-F" && i + 1 < words.size())
      separators = words[++i];
    else if (words[i].rfind("-F", 0) == 0)
      separators = words[i].substr(2);
    else if (program.empty())
      program = words[i];
    else
      return std::nullopt;
  }
  std::string text;
  for (const char c : program)
    if (std::isspace(static_cast<unsigned char>(c)) == 0) text += c;
  if (text.rfind("{print$", 0) != 0 || text.back() != '}') return std::nullopt;
  const std::string field = text.substr(7, text.size() - 8);
  int64_t number = 0;
  if (field != "NF" && !parse_int(field, &number)) return std::nullopt;
  Words out;
  for (const std::string& line : shell_lines(input)) {
    const Words fields = shell_fields(line, separators);
    const int64_t at = field == "NF" ? static_cast<int64_t>(fields.size()) : number;
    out.push_back(at == 0                                     ? line
                  : at <= static_cast<int64_t>(fields.size()) ? fields[static_cast<size_t>(at) - 1]
                                                              : "");
  }
  return ended(out);
}

// Plain text alone is looked for; options that change what counts are not known here.
Output found_lines(const Words& words, const std::string& input) {
  std::string wanted;
  bool without = false, count = false;
  for (size_t i = 1; i < words.size(); ++i) {
    if (words[i].size() > 1 && words[i][0] == '-') {
      if (words[i].find_first_not_of("qcvEFo-") != std::string::npos) return std::nullopt;
      without = without || words[i].find('v') != std::string::npos;
      count = count || words[i].find('c') != std::string::npos;
    } else if (wanted.empty()) {
      wanted = words[i];
    } else {
      return std::nullopt;
    }
  }
  if (wanted.find_first_of(".*[]^$\\+?|(){}") != std::string::npos) return std::nullopt;
  Words out;
  for (const std::string& line : shell_lines(input))
    if ((line.find(wanted) != std::string::npos) != without) out.push_back(line);
  return count ? cat(out.size(), "\n") : ended(out);
}

Output sorted_lines(const Words& words, const std::string& input) {
  Words lines = shell_lines(input);
  const bool numbers = words.size() == 2 && words[1] == "-n";
  const bool once = words[0] == "sort" && words.size() == 2 && words[1] == "-u";
  if (words.size() > 1 && !numbers && !once) return std::nullopt;
  if (words[0] == "sort")
    std::stable_sort(lines.begin(), lines.end(), [&](const std::string& a, const std::string& b) {
      int64_t x = 0, y = 0;
      return numbers && parse_int(a, &x) && parse_int(b, &y) ? x < y : a < b;
    });
  if (words[0] == "uniq" || once) lines.erase(std::unique(lines.begin(), lines.end()), lines.end());
  return ended(lines);
}

}  // namespace

std::vector<std::string> shell_lines(const std::string& text) {
  Words lines = split(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

std::vector<std::string> shell_fields(const std::string& text, const std::string& separators) {
  Words out;
  std::string field;
  const bool blanks = separators.find_first_not_of(" \t\n") == std::string::npos;
  for (const char c : text) {
    if (separators.find(c) == std::string::npos) {
      field += c;
    } else if (!blanks || !field.empty()) {
      out.push_back(field);
      field.clear();
    }
  }
  if (!field.empty()) out.push_back(field);
  return out;
}

bool is_shell_tool(const std::string& name) {
  static const std::set<std::string> names = {
      "wc",      "head", "tail", "tr",    "cut",      "seq",      "basename",
      "dirname", "expr", "awk",  "grep",  "egrep",    "sort",     "uniq",
      "sed",     "bc",   "date", "uname", "realpath", "readlink", "fgrep"};
  return names.count(name) > 0;
}

std::optional<std::string> shell_tool_output(const std::vector<std::string>& words,
                                             const std::string& input) {
  const std::string& name = words[0];
  if (name == "wc") return counted(words, input);
  if (name == "head" || name == "tail") return ends_of(words, input);
  if (name == "tr") return translated(words, input);
  if (name == "cut") return cut_fields(words, input);
  if (name == "seq") return sequence_of(words);
  if (name == "basename" || name == "dirname") return name_part_of(words);
  if (name == "expr") return expression(words);
  if (name == "awk") return printed_field(words, input);
  if (name == "grep" || name == "egrep" || name == "fgrep") return found_lines(words, input);
  if (name == "sort" || name == "uniq") return sorted_lines(words, input);
  if ((name == "realpath" || name == "readlink") && words.size() > 1 && words.back()[0] == '/')
    return words.back() + "\n";
  return std::nullopt;
}

}  // namespace braid::inline foreign
