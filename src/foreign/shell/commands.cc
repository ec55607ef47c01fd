// What the reader of scripts does at a command: builtins of bash, programs that start others, and
// the record of all that remains.
#include <algorithm>
#include <cstdlib>

#include "base/text.h"
#include "foreign/shell/reader.h"

namespace braid::inline foreign {
namespace {

constexpr int kMostNaps = 100;  // after which a loop is left, as in the sandbox

bool is_among(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string last_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// "/usr/bin/env" is env; what lies elsewhere is what a script or a project brings.
std::string tool_name(const std::string& name) {
  for (const char* folder : {"/bin/", "/usr/bin/", "/usr/local/bin/"})
    if (name.rfind(folder, 0) == 0 && name.rfind('/') + 1 == std::string(folder).size())
      return last_name(name);
  return name;
}

// Escapes of printf and "echo -e".
std::string unescaped(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char next = text[i] == '\\' && i + 1 < text.size() ? text[i + 1] : '\0';
    const char made = next == 'n' ? '\n' : next == 't' ? '\t' : next == '\\' ? '\\' : '\0';
    if (made != '\0') ++i;
    out += made != '\0' ? made : text[i];
  }
  return out;
}

// One round of a format over arguments; `used` counts those that it took.
std::string formatted(const std::string& format, const std::vector<std::string>& words,
                      size_t* used) {
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 >= format.size()) {
      out += format[i];
      continue;
    }
    const size_t end = format.find_first_not_of("-+ 0123456789.", i + 1);
    if (end == std::string::npos) return out;
    const std::string width = format.substr(i + 1, end - i - 1);
    i = end;
    if (format[end] == '%') {
      out += '%';
      continue;
    }
    std::string value = *used < words.size() ? words[*used] : "";
    ++*used;
    int64_t wanted = 0;
    const bool zeros = !width.empty() && width[0] == '0';
    if (parse_int(width.substr(zeros ? 1 : 0), &wanted) && wanted < 1000)
      while (static_cast<int64_t>(value.size()) < wanted) value = cat(zeros ? "0" : " ", value);
    out += value;
  }
  return out;
}

void print(const ShellStreams& streams, const std::string& text) {
  if (streams.out) streams.out->text += text;
}

}  // namespace

const std::vector<std::string>& stand_in_programs() {
  static const std::vector<std::string> names = split(
      "python python3 torchrun ray uv pip pip3 conda mamba poetry accelerate deepspeed srun sbatch "
      "scontrol squeue mpirun mpiexec sudo docker podman singularity apptainer enroot ssh scp "
      "rsync "
      "numactl taskset setsid stdbuf nsys nc curl wget git hf huggingface-cli modelscope wandb "
      "nvidia-smi rocm-smi npu-smi hostname whoami pkill killall ps pgrep chmod chown sleep jq "
      "module apt apt-get make",
      ' ');
  return names;
}

const std::vector<std::string>& wrapper_programs() {
  static const std::vector<std::string> names = split(
      "srun mpirun mpiexec uv sudo docker podman singularity apptainer enroot ssh numactl taskset "
      "setsid stdbuf ray conda poetry nsys",
      ' ');
  return names;
}

bool ShellReader::is_program(const std::string& name) const {
  static const std::vector<std::string> kOthers = split(
      "bash sh env nohup timeout nice xargs mkdir rm cp mv touch ln mktemp id ls cat tee which",
      ' ');
  return is_among(stand_in_programs(), name) || is_shell_tool(name) || is_among(kOthers, name);
}

const std::map<std::string, ShellReader::Builtin>& ShellReader::builtins() {
  using R = ShellReader;
  static const std::map<std::string, Builtin> table = {
      {":", &R::do_nothing},       {"true", &R::do_nothing},    {"false", &R::do_false},
      {"echo", &R::do_echo},       {"printf", &R::do_printf},   {"cd", &R::do_cd},
      {"pwd", &R::do_pwd},         {"break", &R::do_flow},      {"continue", &R::do_flow},
      {"return", &R::do_flow},     {"exit", &R::do_flow},       {"set", &R::do_set},
      {"shift", &R::do_shift},     {"unset", &R::do_unset},     {"eval", &R::do_eval},
      {"source", &R::do_source},   {".", &R::do_source},        {"exec", &R::do_exec},
      {"command", &R::do_command}, {"builtin", &R::do_command}, {"type", &R::do_command},
      {"which", &R::do_command},   {"read", &R::do_read},       {"mapfile", &R::do_lines},
      {"readarray", &R::do_lines}, {"let", &R::do_let},         {"sleep", &R::do_sleep},
      {"getopts", &R::do_options}, {"[", &R::do_bracket},       {"test", &R::do_bracket},
      {"mkdir", &R::do_folders},   {"cat", &R::do_cat},         {"tee", &R::do_tee},
      {"xargs", &R::many},         {"bash", &R::child_shell},   {"sh", &R::child_shell},
      {"env", &R::wrapped},        {"nohup", &R::wrapped},      {"timeout", &R::wrapped},
      {"nice", &R::wrapped}};
  return table;
}

ShellStatus ShellReader::command(Words words, const Streams& streams) {
  const std::string name = tool_name(words[0]);
  if (state_.functions.count(name) > 0) return call(name, words, streams);
  const auto builtin = builtins().find(name);
  if (builtin != builtins().end()) {
    words[0] = name;
    return (this->*builtin->second)(words, streams);
  }
  static const std::vector<std::string> kQuiet = split(
      "wait kill ulimit umask trap jobs disown shopt alias unalias hash bg fg pushd popd dirs rm "
      "cp "
      "mv touch ln history bind enable complete times suspend logout",
      ' ');
  if (is_among(kQuiet, name)) return {};
  if (is_shell_tool(name)) {
    words[0] = name;
    return text_tool(words, streams);
  }
  if (const auto script = file(words[0]); script && words[0].find('/') != std::string::npos) {
    const bool is_shell =
        script->text.rfind("#!", 0) != 0 ||
        script->text.substr(0, script->text.find('\n')).find("sh") != std::string::npos;
    if (is_shell && script->known)
      return child(script->text, words[0], {words.begin() + 1, words.end()}, streams);
  }
  return record(words, streams);
}

ShellStatus ShellReader::call(const std::string& name, const Words& words, const Streams& streams) {
  const ShellTree body = state_.functions[name];
  const Words arguments = std::move(state_.variables.arguments);
  state_.variables.arguments.assign(words.begin() + 1, words.end());
  locals_.emplace_back();
  ++depth_;
  ShellStatus status = run(*body, streams);
  --depth_;
  for (const auto& [local, value] : locals_.back())
    if (value)
      state_.variables.values[local] = *value;
    else
      state_.variables.values.erase(local);
  locals_.pop_back();
  state_.variables.arguments = arguments;
  if (flow_ == Flow::kReturn) {
    flow_ = Flow::kOn;
    status = {state_.variables.status, true};
  }
  return status;
}

// A script in a shell of its own, which has the exported variables.
ShellStatus ShellReader::child(const std::string& script, const std::string& name,
                               const Words& arguments, const Streams& streams) {
  const State before = state_;
  const int loops = loops_, conditions = conditions_;
  const auto locals = std::move(locals_);
  const std::string ending = out_.ending;
  state_.functions.clear();
  state_.variables.arrays.clear();
  state_.ends_at_errors = false;
  for (auto it = state_.variables.values.begin(); it != state_.variables.values.end();)
    it = state_.exported.count(it->first) > 0 ? std::next(it) : state_.variables.values.erase(it);
  state_.variables.name = name;
  state_.variables.arguments = arguments;
  loops_ = conditions_ = 0;
  locals_.clear();
  ShellStatus status = run_text(script, streams);
  if (flow_ == Flow::kExit) status = {state_.variables.status, true};
  state_ = before;
  loops_ = loops, conditions_ = conditions;
  locals_ = locals;
  if (!exhausted_) flow_ = Flow::kOn, out_.ending = ending;
  return status;
}

ShellStatus ShellReader::child_shell(const Words& words, const Streams& streams) {
  size_t i = 1;
  bool text = false;
  for (; i < words.size() && !text && words[i].size() > 1 &&
         (words[i][0] == '-' || words[i][0] == '+');
       ++i) {
    if (words[i] == "-o" || words[i] == "-O" || words[i] == "--rcfile") ++i;
    if (words[i].rfind("--", 0) != 0 && words[i].find('c') != std::string::npos) text = true;
    if (words[i] == "--") break;
  }
  const Words rest(words.begin() + static_cast<std::ptrdiff_t>(std::min(i, words.size())),
                   words.end());
  if (text && !rest.empty()) {
    const auto script = known_text(rest[0]);
    const Words arguments(
        rest.begin() + std::min<std::ptrdiff_t>(2, static_cast<std::ptrdiff_t>(rest.size())),
        rest.end());
    return child(script ? *script : shown_text(rest[0]), rest.size() > 1 ? rest[1] : "bash",
                 arguments, streams);
  }
  const bool from_input = rest.empty() || rest[0] == "-" || text;
  const auto script =
      from_input ? (streams.in ? std::optional(*streams.in) : std::nullopt) : file(rest[0]);
  if (!script || !script->known) {
    if (!from_input || streams.in) assume(join(words, " "), "what it starts is left out");
    return {from_input && !streams.in ? 0 : 127, true};
  }
  const Words arguments = rest.empty() ? Words() : Words(rest.begin() + 1, rest.end());
  return child(script->text, rest.empty() ? "bash" : rest[0], arguments,
               {from_input ? nullptr : streams.in, streams.out});  // all of the input is read
}

// The shell that runs the job of sbatch: the script or the command that its words name, else its
// input. Nothing where the script is not there, or nothing is queued.
std::optional<ShellReader::Words> ShellReader::queued(const Words& words, bool input) const {
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    const std::string& before = words[i - 1];
    if (word.rfind("--wrap=", 0) == 0) return Words{"bash", "-c", word.substr(7)};
    if (word == "--wrap" && i + 1 < words.size()) return Words{"bash", "-c", words[i + 1]};
    if (word[0] == '-') continue;
    if (file(word)) {
      Words job(words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
      return job.insert(job.begin(), "bash"), job;
    }
    const bool is_value = before[0] == '-' && before.find('=') == std::string::npos;
    if (!is_value) return std::nullopt;
  }
  return input ? std::optional(Words{"bash"}) : std::nullopt;
}

// A program, or the shell that it would start.
ShellStatus ShellReader::record(const Words& words, const Streams& streams) {
  const std::string name = last_name(words[0]);
  if (name == "sbatch")
    if (const auto job = queued(words, streams.in != nullptr); job) {
      child_shell(*job, {job->size() == 1 ? streams.in : nullptr, nullptr});
      print(streams, is_among(words, "--parsable") ? "1\n" : "Submitted batch job 1\n");
      return {};
    }
  if (is_among(wrapper_programs(), name))
    for (size_t i = 1; i < words.size(); ++i) {
      const std::string inner = last_name(words[i]);
      Words rest(words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
      if (inner == "bash" || inner == "sh") return child_shell(rest, streams);
      const bool script = inner.size() > 3 && inner.compare(inner.size() - 3, 3, ".sh") == 0;
      if (script && file(words[i]))
        return rest.insert(rest.begin(), "bash"), child_shell(rest, streams);
    }
  Words shown;
  for (const std::string& word : words) shown.push_back(shown_text(word));
  if (!name.empty() && shown[0].find('=') == std::string::npos) shown[0] = shown_text(name);
  out_.commands.push_back(shown);
  return answer(shown, streams.out);
}

// What stand-ins print and how they end: as in the sandbox.
ShellStatus ShellReader::answer(const Words& words, ShellStream* out) {
  const std::string line = join(words, " "), name = words[0];
  const auto has = [&](const char* what) { return line.find(what) != std::string::npos; };
  std::string text;
  bool known = true;
  if (name == "hostname") {
    text = "localhost\n";
  } else if (name == "whoami") {
    text = "user\n";
  } else if (name == "scontrol" && has("hostnames")) {
    int64_t nodes = 0;
    (void)parse_int(state_.variables.values["SLURM_NNODES"], &nodes);
    for (int64_t i = 1; i <= std::min<int64_t>(nodes, 10000); ++i) text += cat("node", i, "\n");
  } else if (name.rfind("python", 0) == 0 && has("device_count")) {
    text = cat(options_.gpus, "\n");
    out_.asked_for_gpus = true;
  } else if (name == "nvidia-smi") {
    out_.asked_for_gpus = true;
    for (int i = 0; i < options_.gpus; ++i)
      text += has(" -L") || has("--list-gpus") ? cat("GPU ", i, ": GPU (UUID: GPU-", i, ")\n")
              : has("--query-gpu=count")       ? cat(options_.gpus, "\n")
              : has("--query-gpu=index")       ? cat(i, "\n")
              : has("--query-gpu=")            ? "GPU\n"
                                               : "";
  } else {
    known = false;
  }
  if (out && known) out->text += text;
  if (out && !known) out->known = false;
  const bool other_device = name.rfind("python", 0) == 0 && has("torch_npu");
  return {other_device ? 1 : 0, known};
}

ShellStatus ShellReader::wrapped(const Words& words, const Streams& streams) {
  size_t i = 1;
  const std::map<std::string, std::string> with_value = {
      {"env", "-u -C -S"}, {"timeout", "-s -k"}, {"nice", "-n"}};
  std::map<std::string, std::optional<std::string>> before;
  const std::set<std::string> exported = state_.exported;
  for (; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    if (words[i].size() > 1 && words[i][0] == '-') {
      const auto values = with_value.find(words[0]);
      if (values != with_value.end() && values->second.find(words[i]) != std::string::npos) ++i;
    } else if (words[0] == "env" && equals != std::string::npos) {
      const std::string name = words[i].substr(0, equals);
      const auto old = state_.variables.values.find(name);
      before.emplace(
          name, old == state_.variables.values.end() ? std::nullopt : std::optional(old->second));
      expander_.set(name, words[i].substr(equals + 1));
      state_.exported.insert(name);
    } else {
      break;
    }
  }
  if (words[0] == "timeout") ++i;  // the time
  ShellStatus status;
  if (i < words.size()) {
    const Words rest(words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
    const auto functions = std::move(state_.functions);  // programs know none
    state_.functions.clear();
    status = command(rest, streams);
    state_.functions = functions;
  } else if (streams.out) {
    streams.out->known = false;
  }
  for (const auto& [name, value] : before)
    if (value)
      state_.variables.values[name] = *value;
    else
      state_.variables.values.erase(name);
  state_.exported = exported;
  return status;
}

ShellStatus ShellReader::many(const Words& words, const Streams& streams) {
  size_t i = 1, each = 0;
  std::string place;
  for (; i < words.size() && words[i].size() > 1 && words[i][0] == '-'; ++i) {
    const char option = words[i][1];
    const bool apart = words[i].size() == 2;
    const std::string value = apart && i + 1 < words.size() ? words[i + 1] : words[i].substr(2);
    int64_t number = 0;
    if (option == 'I') place = value;
    if ((option == 'n' || option == 'L') && parse_int(value, &number) && number > 0)
      each = static_cast<size_t>(number);
    if (apart && std::string("InLPds").find(option) != std::string::npos) ++i;
  }
  const Words start(words.begin() + static_cast<std::ptrdiff_t>(std::min(i, words.size())),
                    words.end());
  if (!streams.in || !streams.in->known || start.empty()) {
    if (!start.empty()) assume(join(words, " "), "what it starts is left out");
    return {0, false};
  }
  const Words items =
      place.empty() ? shell_fields(streams.in->text, " \t\n") : shell_lines(streams.in->text);
  const size_t step = !place.empty() ? 1 : each == 0 ? std::max<size_t>(1, items.size()) : each;
  for (size_t at = 0; at < std::max<size_t>(1, items.size()) && flow_ == Flow::kOn; at += step) {
    Words one = start;
    if (place.empty())
      one.insert(one.end(), items.begin() + static_cast<std::ptrdiff_t>(at),
                 items.begin() + static_cast<std::ptrdiff_t>(std::min(items.size(), at + step)));
    for (std::string& word : one)
      for (size_t found = place.empty() || items.empty() ? std::string::npos : word.find(place);
           found != std::string::npos; found = word.find(place, found + items[at].size()))
        word.replace(found, place.size(), items[at]);
    command(std::move(one), {nullptr, streams.out});
  }
  return {};
}

ShellStatus ShellReader::text_tool(const Words& words, const Streams& streams) {
  Words plain;
  bool known = !streams.in || streams.in->known;
  std::string input = streams.in ? streams.in->text : "";
  for (const std::string& word : words) {
    const auto value = known_text(word);
    known = known && value.has_value();
    plain.push_back(value.value_or(""));
  }
  static const std::set<std::string> kReaders = {"wc",   "head", "tail",  "cut",   "sort",
                                                 "uniq", "grep", "egrep", "fgrep", "awk"};
  // A file in place of the input.
  if (!streams.in && plain.size() > 1 && known && kReaders.count(words[0]) > 0)
    if (const auto content = file(plain.back()); content) {
      known = content->known;
      input = content->text;
      plain.pop_back();
    }
  const auto printed = known ? shell_tool_output(plain, input) : std::nullopt;
  if (streams.out && printed) streams.out->text += *printed;
  if (streams.out && !printed) streams.out->known = false;
  const bool looks = words[0] == "grep" || words[0] == "egrep";
  if (!looks) return {0, true};
  return printed ? ShellStatus{printed->empty() ? 1 : 0, true} : ShellStatus{1, false};
}

ShellStatus ShellReader::do_nothing(const Words&, const Streams&) { return {}; }
ShellStatus ShellReader::do_false(const Words&, const Streams&) { return {1, true}; }

ShellStatus ShellReader::do_echo(const Words& words, const Streams& streams) {
  size_t i = 1;
  bool line = true, escapes = false;
  for (; i < words.size() &&
         (words[i] == "-n" || words[i] == "-e" || words[i] == "-ne" || words[i] == "-en");
       ++i) {
    line = line && words[i].find('n') == std::string::npos;
    escapes = escapes || words[i].find('e') != std::string::npos;
  }
  std::string text = join(Words(words.begin() + static_cast<std::ptrdiff_t>(i), words.end()), " ");
  if (escapes) text = unescaped(text);
  print(streams, line ? text + "\n" : text);
  return {};
}

ShellStatus ShellReader::do_printf(const Words& words, const Streams& streams) {
  size_t first = 1;
  const bool to_variable = words.size() > 3 && words[1] == "-v";
  if (to_variable) first = 3;
  if (words.size() <= first) return {};
  const Words values(words.begin() + static_cast<std::ptrdiff_t>(first) + 1, words.end());
  std::string text;
  size_t used = 0;
  do {
    const size_t before = used;
    text += formatted(unescaped(words[first]), values, &used);
    if (used == before) break;
  } while (used < values.size() && text.size() < (size_t{1} << 18));
  if (to_variable)
    expander_.set(words[2], text);
  else
    print(streams, text);
  return {};
}

ShellStatus ShellReader::do_cd(const Words& words, const Streams&) {
  const auto path =
      words.size() > 1 ? known_text(words.back()) : std::optional<std::string>("/home/user");
  if (path && (is_folder(*path))) {
    state_.folder = absolute(*path);
    state_.variables.values["PWD"] = state_.folder;
  }
  return {};
}

ShellStatus ShellReader::do_pwd(const Words&, const Streams& streams) {
  print(streams, state_.folder + "\n");
  return {};
}

ShellStatus ShellReader::do_flow(const Words& words, const Streams&) {
  int64_t number = 0;
  const bool stated = words.size() > 1 && parse_int(words[1], &number);
  if (words[0] == "break" || words[0] == "continue") {
    if (loops_ == 0) return {};
    levels_ = stated ? static_cast<int>(std::clamp<int64_t>(number, 1, 1000)) : 1;
    flow_ = words[0] == "break" ? Flow::kBreak : Flow::kContinue;
    return {};
  }
  if (stated) state_.variables.status = static_cast<int>(number & 255);
  if (words[0] == "return") {
    flow_ = Flow::kReturn;
    return {state_.variables.status, true};
  }
  out_.ending = cat("line ", line_, ": exit ", state_.variables.status);
  flow_ = Flow::kExit;
  return {state_.variables.status, true};
}

ShellStatus ShellReader::do_set(const Words& words, const Streams&) {
  for (size_t i = 1; i < words.size(); ++i) {
    if (words[i] == "--") {
      state_.variables.arguments.assign(words.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                        words.end());
      return {};
    }
    const bool named_option = i > 1 && words[i - 1].ends_with('o') && words[i] == "errexit";
    const bool letters = words[i].size() > 1 && (words[i][0] == '-' || words[i][0] == '+');
    if (named_option) state_.ends_at_errors = words[i - 1][0] == '-';
    if (letters && words[i].find('e') != std::string::npos)
      state_.ends_at_errors = words[i][0] == '-';
  }
  return {};
}

ShellStatus ShellReader::do_shift(const Words& words, const Streams&) {
  int64_t count = 1;
  if (words.size() > 1 && !parse_int(words[1], &count)) return {1, true};
  Words& arguments = state_.variables.arguments;
  if (count < 0 || count > static_cast<int64_t>(arguments.size())) return {1, true};
  arguments.erase(arguments.begin(), arguments.begin() + count);
  return {};
}

ShellStatus ShellReader::do_unset(const Words& words, const Streams&) {
  for (size_t i = 1; i < words.size(); ++i) {
    if (words[i] == "-f") return state_.functions.erase(words.back()), ShellStatus{};
    state_.variables.values.erase(words[i]);
    state_.variables.arrays.erase(words[i]);
    state_.exported.erase(words[i]);
  }
  return {};
}

ShellStatus ShellReader::do_eval(const Words& words, const Streams& streams) {
  const std::string script = join(Words(words.begin() + 1, words.end()), " ");
  return run_text(known_text(script).value_or(shown_text(script)), streams);
}

ShellStatus ShellReader::do_source(const Words& words, const Streams& streams) {
  if (words.size() < 2) return {1, true};
  const bool input = words[1] == "/dev/stdin" && streams.in;
  const auto script = input ? std::optional(*streams.in) : file(words[1]);
  if (!script || !script->known) {
    assume(join(words, " "), "that file is not in the script's project, and left out");
    return {};
  }
  const Words arguments = state_.variables.arguments;
  if (words.size() > 2) state_.variables.arguments.assign(words.begin() + 2, words.end());
  const ShellStatus status = run_text(script->text, streams);
  if (flow_ == Flow::kReturn) flow_ = Flow::kOn;
  if (words.size() > 2) state_.variables.arguments = arguments;
  return status;
}

ShellStatus ShellReader::do_exec(const Words& words, const Streams& streams) {
  size_t i = 1;
  while (i < words.size() && words[i].size() > 1 && words[i][0] == '-')
    i += words[i] == "-a" ? 2 : 1;
  if (i >= words.size()) return {};  // its redirections alone
  const ShellStatus status =
      command({words.begin() + static_cast<std::ptrdiff_t>(i), words.end()}, streams);
  if (flow_ == Flow::kOn)
    flow_ = Flow::kExit, out_.ending = cat("line ", line_, ": exec ", words[i]);
  state_.variables.status = status.code;
  return status;
}

// command, builtin, type and which: a question, or the command itself.
ShellStatus ShellReader::do_command(const Words& words, const Streams& streams) {
  size_t i = 1;
  bool asks = words[0] == "type" || words[0] == "which";
  for (; i < words.size() && words[i].size() > 1 && words[i][0] == '-'; ++i)
    asks = asks || words[i] == "-v" || words[i] == "-V";
  if (i >= words.size()) return {};
  if (!asks) return command({words.begin() + static_cast<std::ptrdiff_t>(i), words.end()}, streams);
  const std::string& name = words[i];
  const bool inside =
      state_.functions.count(name) > 0 || (builtins().count(name) > 0 && !is_program(name));
  if (!inside && !is_program(name)) return {1, true};
  print(streams, inside ? name + "\n" : cat("/usr/bin/", name, "\n"));
  return {};
}

ShellStatus ShellReader::do_read(const Words& words, const Streams& streams) {
  size_t i = 1;
  bool array = false;
  for (; i < words.size() && words[i].size() > 1 && words[i][0] == '-'; ++i) {
    array = array || words[i].back() == 'a';
    if (std::string("dptnu").find(words[i].back()) != std::string::npos) ++i;
  }
  if (!streams.in) return {1, true};  // the end of an empty input
  if (!streams.in->known) return {1, false};
  std::string& rest = const_cast<ShellStream*>(streams.in)->text;
  if (rest.empty()) return {1, true};
  const std::string line = rest.substr(0, rest.find('\n'));
  rest.erase(0, std::min(rest.size(), line.size() + 1));
  const auto separators = state_.variables.values.find("IFS");
  Words fields = shell_fields(
      line, separators == state_.variables.values.end() ? " \t\n" : separators->second);
  if (array && i < words.size()) {
    ShellArray made;
    for (size_t k = 0; k < fields.size(); ++k) made.set(cat(k), fields[k]);
    state_.variables.arrays[words[i]] = made;
    return {};
  }
  for (size_t k = 0; i < words.size(); ++i, ++k) {
    const bool last = i + 1 == words.size();
    std::string value = k < fields.size() ? fields[k] : "";
    for (size_t more = k + 1; last && more < fields.size(); ++more) value += cat(" ", fields[more]);
    expander_.set(words[i], value);
  }
  return {};
}

ShellStatus ShellReader::do_lines(const Words& words, const Streams& streams) {
  if (!streams.in || words.size() < 2) return {1, true};
  if (!streams.in->known) assume(join(words, " "), "taken as no line");
  ShellArray made;
  const Words lines = streams.in->known ? shell_lines(streams.in->text) : Words();
  for (size_t k = 0; k < lines.size(); ++k) made.set(cat(k), lines[k]);
  state_.variables.arrays[words.back()] = made;
  return {};
}

ShellStatus ShellReader::do_let(const Words& words, const Streams&) {
  std::optional<int64_t> value = 0;
  for (size_t i = 1; i < words.size(); ++i) value = expander_.arithmetic(words[i]);
  return {value && *value != 0 ? 0 : 1, value.has_value()};
}

// What a script waits for never comes: a loop that slept often enough is left.
ShellStatus ShellReader::do_sleep(const Words&, const Streams&) {
  if (++naps_ < kMostNaps || loops_ == 0) return {};
  naps_ = 0;
  assume("sleep", cat("the loop around it is left after ", kMostNaps, " times"));
  flow_ = Flow::kBreak;
  levels_ = 1000;
  return {};
}

ShellStatus ShellReader::do_options(const Words& words, const Streams&) {
  if (state_.variables.arguments.empty()) return {1, true};
  assume(join(words, " "), "the script's arguments are left out");
  return {1, true};
}

ShellStatus ShellReader::do_bracket(const Words& words, const Streams&) {
  Words inside(words.begin() + 1, words.end());
  if (words[0] == "[" && !inside.empty() && inside.back() == "]") inside.pop_back();
  return test(inside, false);
}

ShellStatus ShellReader::do_folders(const Words& words, const Streams&) {
  for (size_t i = 1; i < words.size(); ++i)
    if (const auto path = known_text(words[i]); path && !path->empty() && (*path)[0] != '-')
      for (std::string part = absolute(*path); part.size() > 1; part.resize(part.rfind('/')))
        folders_.insert(part);
  return {};
}

ShellStatus ShellReader::do_cat(const Words& words, const Streams& streams) {
  bool any = false;
  for (size_t i = 1; i < words.size(); ++i) {
    if (words[i][0] == '-' && words[i].size() > 1) continue;
    any = true;
    const auto content =
        words[i] == "-" && streams.in ? std::optional(*streams.in) : file(words[i]);
    if (streams.out && content) streams.out->text += content->text;
    if (streams.out) streams.out->known = streams.out->known && content && content->known;
    if (!content) return {1, false};
  }
  if (any || !streams.in || !streams.out) return {};
  streams.out->text += streams.in->text;
  streams.out->known = streams.out->known && streams.in->known;
  return {};
}

ShellStatus ShellReader::do_tee(const Words& words, const Streams& streams) {
  const ShellStream content = streams.in ? *streams.in : ShellStream{};
  for (size_t i = 1; i < words.size(); ++i)
    if (words[i][0] != '-') files_[absolute(shown_text(words[i]))] = content;
  if (streams.out) {
    streams.out->text += content.text;
    streams.out->known = streams.out->known && content.known;
  }
  return {};
}

// export, declare, local, readonly: words as written, since "NAME=(...)" is one.
void ShellReader::declare(const std::string& kind, const Words& raw) {
  bool by_name = false, exports = kind == "export", functions = false;
  const auto keep = [&](const std::string& name) {
    if (kind != "local" && (kind == "export" || kind == "readonly" || locals_.empty())) return;
    if (locals_.empty()) return;
    const auto old = state_.variables.values.find(name);
    locals_.back().emplace(
        name, old == state_.variables.values.end() ? std::nullopt : std::optional(old->second));
  };
  for (const std::string& word : raw) {
    if (word.size() > 1 && word[0] == '-') {
      by_name = by_name || word.find('A') != std::string::npos;
      exports = exports || word.find('x') != std::string::npos;
      functions = functions || word.find('f') != std::string::npos;
      continue;
    }
    if (functions) continue;
    const std::string name = word.substr(0, word.find_first_of("=[+"));
    keep(name);
    if (by_name) state_.variables.arrays[name].by_name = true;
    std::vector<std::string> names = {name};
    if (!expander_.assign(word)) {
      names = expander_.fields(word);
      for (std::string& field : names)
        if (const size_t equals = field.find('='); equals != std::string::npos) {
          expander_.set(field.substr(0, equals), field.substr(equals + 1));
          field.resize(equals);
        } else if (kind == "local") {
          state_.variables.values.erase(field);
        }
    }
    for (const std::string& exported : names)
      if (exports) state_.exported.insert(exported);
  }
}

}  // namespace braid::inline foreign
