// The walk over a script's tree behind foreign/shell/shell.h. Internal to foreign/. One thread at a
// time may use a reader.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "foreign/shell/expand.h"
#include "foreign/shell/shell.h"
#include "foreign/shell/tree.h"

namespace braid::inline foreign {

struct ShellStream {
  std::string text;
  bool known = true;
};

// Where a command reads and prints; nothing is the terminal.
struct ShellStreams {
  const ShellStream* in = nullptr;
  ShellStream* out = nullptr;
};

struct ShellStatus {
  int code = 0;
  bool known = true;  // otherwise the code is an assumption
};

class ShellReader {
 public:
  explicit ShellReader(const ShellOptions& options);
  Status read(std::string_view text);
  ShellReading take() { return std::move(out_); }

 private:
  using Words = std::vector<std::string>;
  using Streams = ShellStreams;
  using Builtin = ShellStatus (ShellReader::*)(const Words& words, const Streams& streams);
  enum class Flow { kOn, kBreak, kContinue, kReturn, kExit };
  struct State {
    ShellVariables variables;
    std::map<std::string, ShellTree> functions;
    std::set<std::string> exported;
    std::string folder;
    bool ends_at_errors = false;
  };

  // Control, in reader.cc.
  ShellStatus run(const ShellNode& node, Streams streams);
  ShellStatus run_kind(const ShellNode& node, const Streams& streams);
  ShellStatus sequence(const ShellNode& node, const Streams& streams);
  ShellStatus and_or(const ShellNode& node, const Streams& streams);
  ShellStatus pipeline(const ShellNode& node, const Streams& streams);
  ShellStatus if_command(const ShellNode& node, const Streams& streams);
  ShellStatus while_command(const ShellNode& node, const Streams& streams);
  ShellStatus for_command(const ShellNode& node, const Streams& streams);
  ShellStatus arithmetic_for(const ShellNode& node, const Streams& streams);
  ShellStatus case_command(const ShellNode& node, const Streams& streams);
  ShellStatus simple(const ShellNode& node, const Streams& streams);
  ShellStatus sub_shell(const ShellNode& node, const Streams& streams);
  bool holds(const ShellNode& condition, const Streams& streams);
  bool decide(const ShellStatus& status, const std::string& text);
  bool leaves_loop();
  bool redirect(const ShellNode& node, Streams* streams, ShellStream* in, ShellStream* out,
                std::string* file);
  std::string output_of(const std::string& script);
  ShellStatus run_text(const std::string& script, const Streams& streams);
  void assume(const std::string& what, const std::string& taken);
  void fail(const std::string& what);

  // Commands, in commands.cc.
  ShellStatus command(Words words, const Streams& streams);
  ShellStatus call(const std::string& name, const Words& words, const Streams& streams);
  ShellStatus child_shell(const Words& words, const Streams& streams);
  ShellStatus child(const std::string& script, const std::string& name, const Words& arguments,
                    const Streams& streams);
  ShellStatus record(const Words& words, const Streams& streams);
  std::optional<Words> queued(const Words& words, bool input) const;  // by sbatch
  ShellStatus wrapped(const Words& words, const Streams& streams);
  ShellStatus many(const Words& words, const Streams& streams);  // xargs
  ShellStatus text_tool(const Words& words, const Streams& streams);
  ShellStatus answer(const Words& words, ShellStream* out);
  static const std::map<std::string, Builtin>& builtins();
  ShellStatus do_nothing(const Words& words, const Streams& streams);
  ShellStatus do_false(const Words& words, const Streams& streams);
  ShellStatus do_echo(const Words& words, const Streams& streams);
  ShellStatus do_printf(const Words& words, const Streams& streams);
  ShellStatus do_cd(const Words& words, const Streams& streams);
  ShellStatus do_pwd(const Words& words, const Streams& streams);
  ShellStatus do_flow(const Words& words, const Streams& streams);
  ShellStatus do_set(const Words& words, const Streams& streams);
  ShellStatus do_shift(const Words& words, const Streams& streams);
  ShellStatus do_unset(const Words& words, const Streams& streams);
  ShellStatus do_eval(const Words& words, const Streams& streams);
  ShellStatus do_source(const Words& words, const Streams& streams);
  ShellStatus do_exec(const Words& words, const Streams& streams);
  ShellStatus do_command(const Words& words, const Streams& streams);
  ShellStatus do_read(const Words& words, const Streams& streams);
  ShellStatus do_lines(const Words& words, const Streams& streams);
  ShellStatus do_let(const Words& words, const Streams& streams);
  ShellStatus do_sleep(const Words& words, const Streams& streams);
  ShellStatus do_options(const Words& words, const Streams& streams);
  ShellStatus do_bracket(const Words& words, const Streams& streams);
  ShellStatus do_folders(const Words& words, const Streams& streams);
  ShellStatus do_cat(const Words& words, const Streams& streams);
  ShellStatus do_tee(const Words& words, const Streams& streams);
  bool is_program(const std::string& name) const;
  void declare(const std::string& kind, const Words& raw);

  // Tests, in condition.cc.
  class Condition;
  ShellStatus test(const Words& words, bool raw);
  ShellStatus unary(const std::string& op, const std::string& operand);
  ShellStatus binary(const std::string& left, const std::string& op, const std::string& right,
                     const std::string& pattern);
  ShellStatus file_test(const std::string& op, const std::string& path);

  // Files of the project and those that the script wrote.
  std::string absolute(const std::string& path) const;
  std::optional<ShellStream> file(const std::string& path) const;
  bool is_folder(const std::string& path) const;
  bool is_of_project(const std::string& path) const;

  const ShellOptions& options_;
  ShellReading out_;
  State state_;
  ShellHost host_;
  ShellExpander expander_;
  std::map<std::string, ShellStream> files_;
  std::set<std::string> folders_;
  std::vector<std::map<std::string, std::optional<std::string>>> locals_;
  Flow flow_ = Flow::kOn;
  int levels_ = 0;      // of loops that a break or continue still leaves
  int loops_ = 0;       // around the present command
  int conditions_ = 0;  // in which a failure does not end the script
  int depth_ = 0;       // calls around the present command
  int inner_ = 0;       // of these, texts with lines of their own
  int nesting_ = 0;     // commands around it
  int naps_ = 0;
  int64_t steps_ = 0;
  bool substituted_ = false;  // the present command took another's output
  bool exhausted_ = false;    // no more is read
  int line_ = 0;
};

// Standard tools on known text: what they print, or nothing where it is not known here.
std::optional<std::string> shell_tool_output(const std::vector<std::string>& words,
                                             const std::string& input);
bool is_shell_tool(const std::string& name);

// Lines without their ends.
std::vector<std::string> shell_lines(const std::string& text);
std::vector<std::string> shell_fields(const std::string& text, const std::string& separators);

}  // namespace braid::inline foreign
