// "[ ... ]", "test ..." and "[[ ... ]]".
#include <algorithm>
#include <regex>

#include "base/text.h"
#include "foreign/shell/reader.h"

namespace braid::inline foreign {
namespace {

constexpr size_t kLongestMatch = 100;  // of a regular expression and of its subject
constexpr int kDeepestTest = 50;

constexpr ShellStatus kHolds{0, true}, kFails{1, true}, kUnclear{1, false};

ShellStatus as_status(bool holds) { return holds ? kHolds : kFails; }

bool is_binary(const std::string& word) {
  static const std::set<std::string> operators = {"=",   "==",  "!=",  "=~",  "<",
                                                  ">",   "-eq", "-ne", "-lt", "-le",
                                                  "-gt", "-ge", "-nt", "-ot", "-ef"};
  return operators.count(word) > 0;
}

bool is_unary(const std::string& word) {
  return word.size() == 2 && word[0] == '-' &&
         std::string("zndefrwxshLvpSgukbcotGON").find(word[1]) != std::string::npos;
}

std::optional<bool> compared(int64_t a, const std::string& op, int64_t b) {
  if (op == "-eq") return a == b;
  if (op == "-ne") return a != b;
  if (op == "-lt") return a < b;
  if (op == "-le") return a <= b;
  if (op == "-gt") return a > b;
  if (op == "-ge") return a >= b;
  return std::nullopt;
}

ShellStatus matched(const std::string& text, const std::string& expression) {
  if (text.size() > kLongestMatch || expression.size() > kLongestMatch) return kUnclear;
  try {
    return as_status(std::regex_search(text, std::regex(expression, std::regex::extended)));
  } catch (const std::regex_error&) {
    return kUnclear;
  }
}

}  // namespace

// Descends over the words of a test; `raw` words, between [[ and ]], are not expanded yet.
class ShellReader::Condition {
 public:
  Condition(ShellReader* reader, const Words& words, bool raw)
      : reader_(*reader), words_(words), raw_(raw) {}

  ShellStatus whole() {
    if (words_.empty()) return kFails;
    const ShellStatus status = either();
    return at_ == words_.size() ? status : kUnclear;
  }

 private:
  bool here(const char* what) const { return at_ < words_.size() && words_[at_] == what; }

  ShellStatus either() {
    ShellStatus left = both();
    while (here(raw_ ? "||" : "-o")) {
      ++at_;
      const ShellStatus right = both();
      left = joined(left, right, 0);
    }
    return left;
  }

  ShellStatus both() {
    ShellStatus left = one();
    while (here(raw_ ? "&&" : "-a")) {
      ++at_;
      const ShellStatus right = one();
      left = joined(left, right, 1);
    }
    return left;
  }

  // One that is known and decides, or both.
  static ShellStatus joined(const ShellStatus& a, const ShellStatus& b, int deciding) {
    if (a.known && a.code == deciding) return a;
    if (b.known && b.code == deciding) return b;
    const bool decides = a.code == deciding || b.code == deciding;
    return {decides ? deciding : 1 - deciding, a.known && b.known};
  }

  ShellStatus one() {
    if (++depth_ > kDeepestTest || at_ >= words_.size()) return kUnclear;
    const size_t left = words_.size() - at_;
    if (here("!") && left > 1) {
      ++at_;
      ShellStatus inner = one();
      inner.code = inner.code == 0 ? 1 : 0;
      return inner;
    }
    if (here("(") && left > 2) {
      ++at_;
      const ShellStatus inner = either();
      if (!here(")")) return kUnclear;
      return ++at_, inner;
    }
    if (left > 2 && is_binary(words_[at_ + 1])) return two_sided();
    if (left > 1 && is_unary(words_[at_])) {
      at_ += 2;
      return reader_.unary(words_[at_ - 2], expanded(words_[at_ - 1]));
    }
    return reader_.unary("-n", expanded(words_[at_++]));
  }

  ShellStatus two_sided() {
    const std::string op = words_[at_ + 1], right = words_[at_ + 2];
    const std::string left = expanded(words_[at_]);
    at_ += 3;
    const bool pattern = raw_ && (op == "=" || op == "==" || op == "!=");
    return reader_.binary(left, op, expanded(right),
                          pattern ? reader_.expander_.pattern(right) : "");
  }

  std::string expanded(const std::string& word) {
    return raw_ ? reader_.expander_.text(word) : word;
  }

  ShellReader& reader_;
  const Words& words_;
  bool raw_;
  size_t at_ = 0;
  int depth_ = 0;
};

ShellStatus ShellReader::test(const Words& words, bool raw) {
  return Condition(this, words, raw).whole();
}

ShellStatus ShellReader::unary(const std::string& op, const std::string& operand) {
  const auto known = known_text(operand);
  if (op == "-v") {
    const std::string name = shown_text(operand);
    return as_status(state_.variables.values.count(name) + state_.variables.arrays.count(name) > 0);
  }
  if (!known) {
    // What a command prints is hardly ever empty, and hardly ever says so.
    return {op == "-n" ? 0 : 1, false};
  }
  if (op == "-z") return as_status(known->empty());
  if (op == "-n") return as_status(!known->empty());
  if (op == "-t" || op == "-p" || op == "-S") return kFails;
  return file_test(op, *known);
}

ShellStatus ShellReader::file_test(const std::string& op, const std::string& path) {
  if (path.empty()) return kFails;
  if (path == "/dev/null" || path == "/dev/stdin")
    return as_status(op == "-e" || op == "-r" || op == "-w");
  const bool folder = is_folder(path);
  const auto content = folder ? std::nullopt : file(path);
  if (op == "-d") return folder || is_of_project(path) || content ? as_status(folder) : kUnclear;
  if (op == "-e" || op == "-r" || op == "-w" || op == "-x") {
    if (folder || content) return kHolds;
  } else if (op == "-f") {
    if (folder || content) return as_status(!folder);
  } else if (op == "-s" && content) {
    return as_status(!content->text.empty());
  }
  return is_of_project(path) && (op == "-e" || op == "-f" || op == "-r") ? kFails : kUnclear;
}

ShellStatus ShellReader::binary(const std::string& left, const std::string& op,
                                const std::string& right, const std::string& pattern) {
  const auto a = known_text(left), b = known_text(right);
  if (!a || !b) return kUnclear;
  if (op == "=~") return matched(*a, *b);
  if (!pattern.empty() || (b->empty() && (op == "=" || op == "==" || op == "!="))) {
    const auto wanted = known_text(pattern);
    const bool same = pattern.empty() ? *a == *b : shell_matches(wanted.value_or(""), *a);
    return as_status(same == (op != "!="));
  }
  if (op == "=" || op == "==") return as_status(*a == *b);
  if (op == "!=") return as_status(*a != *b);
  if (op == "<") return as_status(*a < *b);
  if (op == ">") return as_status(*a > *b);
  if (op == "-nt" || op == "-ot" || op == "-ef") return kUnclear;
  const auto x = expander_.arithmetic(a->empty() ? "0" : *a);
  const auto y = expander_.arithmetic(b->empty() ? "0" : *b);
  // bash says that a whole number is wanted, and takes it as false.
  const auto holds = x && y && !a->empty() && !b->empty() ? compared(*x, op, *y) : std::nullopt;
  return holds ? as_status(*holds) : ShellStatus{2, true};
}

std::map<std::string, std::string> slurm_variables(std::string_view script) {
  std::map<std::string, std::string> said, out;
  for (const std::string& line : split(script, '\n')) {
    if (line.rfind("#SBATCH", 0) != 0) continue;
    for (const std::string& word : shell_fields(line.substr(7, line.find(" #", 7) - 7), " \t")) {
      const size_t equals = word.find('=');
      if (equals != std::string::npos) said[word.substr(0, equals)] = word.substr(equals + 1);
      if (equals == std::string::npos && word[0] == '-') said[""] = word;
      if (equals == std::string::npos && word[0] != '-') said[said[""]] = word;
    }
  }
  if (said.empty()) return out;
  const auto value = [&](std::initializer_list<const char*> names) -> std::string {
    for (const char* name : names)
      if (const auto found = said.find(name); found != said.end())
        return found->second.substr(found->second.rfind(':') + 1);
    return "";
  };
  std::string nodes = value({"--nodes", "-N"});
  if (nodes.empty()) nodes = "1";
  out = {{"SLURM_JOB_ID", "1"},
         {"SLURM_NNODES", nodes},
         {"SLURM_JOB_NUM_NODES", nodes},
         {"SLURM_NODEID", "0"},
         {"SLURM_PROCID", "0"},
         {"SLURM_LOCALID", "0"},
         {"SLURM_JOB_NODELIST", cat("node[1-", nodes, "]")}};
  const std::string gpus = value({"--gpus-per-node", "--gres", "--gpus-per-task"});
  if (!gpus.empty()) out["SLURM_GPUS_PER_NODE"] = out["SLURM_GPUS_ON_NODE"] = gpus;
  const std::string cpus = value({"--cpus-per-task", "-c"});
  if (!cpus.empty()) out["SLURM_CPUS_PER_TASK"] = cpus;
  return out;
}

}  // namespace braid::inline foreign
