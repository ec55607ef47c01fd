#include "foreign/shell/reader.h"

#include <algorithm>

#include "base/text.h"

namespace braid::inline foreign {
namespace {

constexpr int64_t kMostSteps = 50000;
constexpr int kMostRounds = 2000;  // of a loop
constexpr int kDeepestCall = 40;   // of functions, substitutions and scripts
constexpr int kDeepestNest = 400;  // of commands inside commands
constexpr size_t kLongestQuote = 70;
constexpr size_t kMostAssumptions = 50;
constexpr size_t kLongestStream = size_t{1} << 20;

std::string quote(const std::string& text) {
  std::string line = shown_text(text.substr(0, text.find('\n')));
  if (line.size() > kLongestQuote) line = cat(line.substr(0, kLongestQuote), "...");
  return cat("`", trim(line), "`");
}

void cut(ShellStream* stream) {
  if (stream->text.size() > kLongestStream) stream->text.resize(kLongestStream);
}

}  // namespace

ShellReader::ShellReader(const ShellOptions& options)
    : options_(options), expander_(&state_.variables, &host_) {
  state_.variables.name = options.name;
  state_.variables.arguments = options.arguments;
  state_.variables.values = {
      {"HOME", "/home/user"},  {"USER", "user"},          {"LANG", "C"},
      {"PWD", options.folder}, {"HOSTNAME", "localhost"}, {"PATH", "/usr/local/bin:/usr/bin:/bin"}};
  for (const auto& [name, value] : options.environment) state_.variables.values[name] = value;
  for (const auto& [name, value] : state_.variables.values) state_.exported.insert(name);
  state_.folder = options.folder;
  folders_ = {"/tmp", "/home", "/home/user", "/", options.folder};
  host_.output = [this](const std::string& script) { return output_of(script); };
  host_.unset = [this](const std::string& name) {
    const bool noted = std::find(out_.unset.begin(), out_.unset.end(), name) != out_.unset.end();
    if (!noted && !name.empty())  // "${}" names none
      out_.unset.push_back(name);
  };
  host_.fail = [this](const std::string& what) { fail(what); };
}

Status ShellReader::read(std::string_view text) {
  BRAID_ASSIGN(const ShellTree tree, parse_shell(text));
  run(*tree, {});
  return ok_status();
}

void ShellReader::assume(const std::string& what, const std::string& taken) {
  const std::string note =
      cat("line ", line_, ": ", quote(what), " is not known without running it; ", taken);
  if (out_.assumptions.size() < kMostAssumptions &&
      std::find(out_.assumptions.begin(), out_.assumptions.end(), note) == out_.assumptions.end())
    out_.assumptions.push_back(note);
}

void ShellReader::fail(const std::string& what) {
  if (flow_ == Flow::kExit) return;
  out_.ending = cat("line ", line_, ": ", shown_text(what));
  flow_ = Flow::kExit;
}

// A condition that is not known counts as its status assumes.
bool ShellReader::decide(const ShellStatus& status, const std::string& text) {
  if (!status.known) assume(text, cat("taken as ", status.code == 0 ? "true" : "false"));
  return status.code == 0;
}

bool ShellReader::holds(const ShellNode& condition, const Streams& streams) {
  ++conditions_;
  const ShellStatus status = run(condition, streams);
  --conditions_;
  const bool one = condition.kind == ShellNode::Kind::kSequence && condition.children.size() == 1;
  return decide(status, one ? condition.children[0]->text : condition.text);
}

bool ShellReader::redirect(const ShellNode& node, Streams* streams, ShellStream* in,
                           ShellStream* out, std::string* file_name) {
  for (const ShellRedirection& to : node.redirections) {
    if (to.op == "<<") {
      *in = {to.literal ? to.target : expander_.document(to.target), true};
    } else if (to.op == "<<<") {
      *in = {cat(expander_.text(to.target), "\n"), true};
    } else if (to.op == "<" && to.target.rfind("<(", 0) == 0) {
      *in = {cat(output_of(to.target.substr(2, to.target.size() - 3)), "\n"), true};
    } else if (to.op == "<") {
      *in = file(expander_.text(to.target)).value_or(ShellStream{"", false});
    } else if (to.op[0] == '>' && to.descriptor != 2 && to.descriptor < 3) {
      if (to.op == ">&" && to.target == "1") continue;
      streams->out = out;
      const std::string name = expander_.text(to.target);
      const bool is_file = to.op != ">&" && name.rfind("/dev/", 0) != 0 && name.rfind(">(", 0) != 0;
      *file_name = is_file ? absolute(name) : "";
      if (is_file && to.op == ">>" && files_.count(*file_name) > 0) *out = files_[*file_name];
      continue;
    } else {
      continue;
    }
    in->known = in->known && known_text(in->text).has_value();
    streams->in = in;
  }
  return !node.redirections.empty();
}

ShellStatus ShellReader::run(const ShellNode& node, Streams streams) {
  if (flow_ != Flow::kOn) return {state_.variables.status, true};
  if (++steps_ > kMostSteps || depth_ > kDeepestCall || nesting_ > kDeepestNest) {
    fail("the script does more than is read here");
    exhausted_ = true;
    return {1, true};
  }
  if (inner_ == 0) line_ = node.line;
  ShellStream in, out;
  std::string written;
  const bool redirected = redirect(node, &streams, &in, &out, &written);
  const int line = line_;
  ++nesting_;
  ShellStatus status = run_kind(node, streams);
  --nesting_;
  line_ = line;
  cut(&out);
  if (redirected && !written.empty()) files_[written] = out;
  state_.variables.status = status.code;
  const bool simple = node.kind == ShellNode::Kind::kSimple || node.kind == ShellNode::Kind::kTest;
  if (simple && state_.ends_at_errors && conditions_ == 0 && status.code != 0 &&
      flow_ == Flow::kOn && status.known)
    fail(cat(quote(node.text), " fails"));
  return status;
}

ShellStatus ShellReader::run_kind(const ShellNode& node, const Streams& streams) {
  using Kind = ShellNode::Kind;
  switch (node.kind) {
    case Kind::kSimple:
      return simple(node, streams);
    case Kind::kSequence:
      return sequence(node, streams);
    case Kind::kAndOr:
      return and_or(node, streams);
    case Kind::kPipeline:
      return pipeline(node, streams);
    case Kind::kIf:
      return if_command(node, streams);
    case Kind::kWhile:
      return while_command(node, streams);
    case Kind::kFor:
      return for_command(node, streams);
    case Kind::kArithmeticFor:
      return arithmetic_for(node, streams);
    case Kind::kCase:
      return case_command(node, streams);
    case Kind::kSubshell:
      return sub_shell(*node.children[0], streams);
    case Kind::kFunction:
      state_.functions[node.words[0]] = node.children[0];
      return {};
    case Kind::kTest:
      return test(node.words, true);
    case Kind::kArithmetic: {
      const auto value = expander_.arithmetic(node.words[0]);
      return {value && *value != 0 ? 0 : 1, value.has_value()};
    }
  }
  return {};
}

ShellStatus ShellReader::sequence(const ShellNode& node, const Streams& streams) {
  ShellStatus status;
  for (const ShellTree& child : node.children) status = run(*child, streams);
  return status;
}

ShellStatus ShellReader::and_or(const ShellNode& node, const Streams& streams) {
  ++conditions_;
  ShellStatus status;
  for (size_t i = 0; i < node.children.size(); ++i) {
    if (i > 0 && (status.code == 0) != (node.words[i - 1] == "&&")) continue;
    const bool last = i + 1 == node.children.size();
    if (last) --conditions_;
    status = run(*node.children[i], streams);
    if (last) return status;
    status = {decide(status, node.children[i]->text) ? 0 : status.code, true};
  }
  --conditions_;
  return status;
}

ShellStatus ShellReader::pipeline(const ShellNode& node, const Streams& streams) {
  ShellStream carried;
  ShellStatus status;
  conditions_ += node.negated ? 1 : 0;
  for (size_t i = 0; i < node.children.size(); ++i) {
    const bool last = i + 1 == node.children.size();
    ShellStream printed;
    Streams part{i == 0 ? streams.in : &carried, last ? streams.out : &printed};
    status = node.children.size() == 1 ? run(*node.children[i], part)
                                       : sub_shell(*node.children[i], part);
    cut(&printed);
    printed.known = printed.known && known_text(printed.text).has_value();
    if (!last) carried = std::move(printed);
  }
  conditions_ -= node.negated ? 1 : 0;
  if (node.negated) status.code = status.code == 0 ? 1 : 0;
  return status;
}

// What it assigns and how it ends stays inside.
ShellStatus ShellReader::sub_shell(const ShellNode& node, const Streams& streams) {
  const State before = state_;
  const int loops = loops_;
  const std::string ending = out_.ending;
  loops_ = 0;
  ShellStatus status = run(node, streams);
  loops_ = loops;
  const bool exits = flow_ == Flow::kExit;
  if (exits) status = {state_.variables.status, true};
  state_ = before;
  if (!exhausted_) flow_ = Flow::kOn, out_.ending = ending;
  return status;
}

ShellStatus ShellReader::if_command(const ShellNode& node, const Streams& streams) {
  size_t i = 0;
  for (; i + 1 < node.children.size(); i += 2)
    if (holds(*node.children[i], streams)) return run(*node.children[i + 1], streams);
  return i < node.children.size() ? run(*node.children[i], streams) : ShellStatus{};
}

// After the body of a loop: whether the loop is over.
bool ShellReader::leaves_loop() {
  if (flow_ == Flow::kOn) return false;
  if (flow_ != Flow::kBreak && flow_ != Flow::kContinue) return true;
  if (--levels_ > 0 && loops_ > 1) return true;
  const bool leaves = flow_ == Flow::kBreak;
  flow_ = Flow::kOn;
  return leaves;
}

ShellStatus ShellReader::while_command(const ShellNode& node, const Streams& streams) {
  ShellStatus status;
  ++loops_;
  ShellStream rest = streams.in ? *streams.in : ShellStream{"", true};
  Streams inner{streams.in ? &rest : nullptr, streams.out};
  for (int round = 0; flow_ == Flow::kOn; ++round) {
    if (holds(*node.children[0], inner) == node.until || flow_ != Flow::kOn) break;
    status = run(*node.children[1], inner);
    if (leaves_loop()) break;
    if (round < kMostRounds) continue;
    assume(node.text, cat("the loop is left after ", kMostRounds, " rounds"));
    break;
  }
  --loops_;
  return status;
}

ShellStatus ShellReader::for_command(const ShellNode& node, const Streams& streams) {
  Words values;
  if (node.over_arguments) values = state_.variables.arguments;
  for (size_t i = 1; i < node.words.size(); ++i)
    for (std::string& field : expander_.fields(node.words[i])) values.push_back(std::move(field));
  ShellStatus status;
  ++loops_;
  for (const std::string& value : values) {
    expander_.set(node.words[0], value);
    status = run(*node.children[0], streams);
    if (leaves_loop()) break;
  }
  --loops_;
  return status;
}

ShellStatus ShellReader::arithmetic_for(const ShellNode& node, const Streams& streams) {
  ShellStatus status;
  const auto blank = [](const std::string& text) { return trim(text).empty(); };
  if (!blank(node.words[0])) expander_.arithmetic(node.words[0]);
  ++loops_;
  for (int round = 0; flow_ == Flow::kOn; ++round) {
    const auto holds =
        blank(node.words[1]) ? std::optional<int64_t>(1) : expander_.arithmetic(node.words[1]);
    if (!holds) assume(node.words[1], "taken as false");
    if (!holds || *holds == 0) break;
    status = run(*node.children[0], streams);
    if (leaves_loop()) break;
    if (round >= kMostRounds) {
      assume(node.text, cat("the loop is left after ", kMostRounds, " rounds"));
      break;
    }
    if (!blank(node.words[2])) expander_.arithmetic(node.words[2]);
  }
  --loops_;
  return status;
}

ShellStatus ShellReader::case_command(const ShellNode& node, const Streams& streams) {
  const std::string marked = expander_.text(node.words[0]);
  const auto subject = known_text(marked);
  if (!subject) assume(cat("case ", node.words[0]), "only a branch for everything else is taken");
  for (size_t i = 0; i < node.children.size(); ++i)
    for (const std::string& pattern : node.patterns[i]) {
      const std::string wanted = shown_text(expander_.pattern(pattern));
      if (subject ? shell_matches(wanted, *subject) : wanted == "*")
        return run(*node.children[i], streams);
    }
  return {};
}

ShellStatus ShellReader::run_text(const std::string& script, const Streams& streams) {
  const auto tree = depth_ < kDeepestCall ? parse_shell(script)
                                          : Result<ShellTree>(invalid_input("nested too deeply"));
  if (!tree.ok()) {
    assume(script, cat("left out (", tree.status().message(), ")"));
    return {1, false};
  }
  ++depth_, ++inner_;
  const ShellStatus status = run(**tree, streams);
  --depth_, --inner_;
  return status;
}

std::string ShellReader::output_of(const std::string& script) {
  const auto tree = depth_ < kDeepestCall ? parse_shell(script)
                                          : Result<ShellTree>(invalid_input("nested too deeply"));
  if (!tree.ok() || flow_ != Flow::kOn) return unknown_text(cat("$(", script, ")"));
  ShellStream printed;
  ++depth_, ++inner_;
  const ShellNode& whole = **tree;
  // "$(< file)" is what the file holds.
  const bool only_file = whole.children.size() == 1 && whole.children[0]->words.empty() &&
                         !whole.children[0]->redirections.empty() &&
                         whole.children[0]->kind == ShellNode::Kind::kSimple;
  ++conditions_;
  if (only_file)
    printed = file(expander_.text(whole.children[0]->redirections[0].target))
                  .value_or(ShellStream{"", false});
  else
    state_.variables.status = sub_shell(whole, {nullptr, &printed}).code;
  --conditions_;
  --depth_, --inner_;
  substituted_ = true;
  cut(&printed);
  if (!printed.known) return unknown_text(cat("$(", script, ")"));
  while (!printed.text.empty() && printed.text.back() == '\n') printed.text.pop_back();
  return printed.text;
}

ShellStatus ShellReader::simple(const ShellNode& node, const Streams& streams) {
  size_t first = 0;
  const auto assigns = [](const std::string& word) {
    const size_t end = word.find_first_of("=[+");
    return end != std::string::npos && end > 0 &&
           std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(end),
                       [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  };
  while (first < node.words.size() && assigns(node.words[first])) ++first;
  const bool command_follows = first < node.words.size();
  std::map<std::string, std::optional<std::string>> before;
  const std::set<std::string> exported = state_.exported;
  substituted_ = false;
  for (size_t i = 0; i < first; ++i) {
    const std::string name = node.words[i].substr(0, node.words[i].find_first_of("=[+"));
    const auto old = state_.variables.values.find(name);
    if (command_follows)
      before.emplace(
          name, old == state_.variables.values.end() ? std::nullopt : std::optional(old->second));
    if (!expander_.assign(node.words[i])) assume(node.words[i], "left out");
    if (command_follows) state_.exported.insert(name);
  }
  // An assignment ends as the command did whose output it takes.
  if (!command_follows) return {substituted_ ? state_.variables.status : 0, true};
  const std::vector<std::string> rest(node.words.begin() + static_cast<std::ptrdiff_t>(first),
                                      node.words.end());
  ShellStatus status;
  static const std::set<std::string> kDeclares = {"export", "declare", "local", "readonly",
                                                  "typeset"};
  if (kDeclares.count(rest[0]) > 0) {
    declare(rest[0], {rest.begin() + 1, rest.end()});
  } else {
    Words words;
    for (const std::string& word : rest)
      for (std::string& field : expander_.fields(word)) words.push_back(std::move(field));
    if (flow_ == Flow::kOn && !words.empty()) status = command(std::move(words), streams);
  }
  for (const auto& [name, value] : before)
    if (value)
      state_.variables.values[name] = *value;
    else
      state_.variables.values.erase(name);
  if (!before.empty()) state_.exported = exported;
  return status;
}

std::string ShellReader::absolute(const std::string& path) const {
  const std::string from = path.empty() || path[0] == '/' ? path : cat(state_.folder, "/", path);
  std::vector<std::string> parts;
  for (const std::string& part : split(from, '/')) {
    if (part == ".." && !parts.empty()) parts.pop_back();
    if (!part.empty() && part != "." && part != "..") parts.push_back(part);
  }
  return cat("/", join(parts, "/"));
}

std::optional<ShellStream> ShellReader::file(const std::string& path) const {
  const auto known = known_text(path);
  if (!known) return std::nullopt;
  const auto written = files_.find(absolute(*known));
  if (written != files_.end()) return written->second;
  const auto text = options_.read ? options_.read(absolute(*known)) : std::nullopt;
  return text ? std::optional(ShellStream{*text, true}) : std::nullopt;
}

bool ShellReader::is_folder(const std::string& path) const {
  return folders_.count(absolute(path)) > 0 ||
         (options_.is_folder && options_.is_folder(absolute(path)));
}

bool ShellReader::is_of_project(const std::string& path) const {
  return options_.folder != "/" && absolute(path).rfind(options_.folder + "/", 0) == 0;
}

Result<ShellReading> read_shell(std::string_view text, const ShellOptions& options) {
  ShellReader reader(options);
  BRAID_TRY(reader.read(text));
  return reader.take();
}

Result<std::vector<std::string>> shell_words(std::string_view text) {
  BRAID_ASSIGN(const ShellReading reading, read_shell(text));
  for (const std::string& name : reading.unset)
    if (name.ends_with(']'))
      return invalid_input(
          cat("the array '${", name, "}' is not assigned here; write its words in its place"));
  std::vector<std::string> out;
  for (const std::vector<std::string>& command : reading.commands) {
    if (!out.empty()) out.emplace_back(";");
    out.insert(out.end(), command.begin(), command.end());
  }
  return out;
}

}  // namespace braid::inline foreign
