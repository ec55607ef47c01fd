#include "host/recorded_script.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/text.h"
#include "host/file.h"
#include "host/process.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

constexpr int kMostUnset = 32;           // variables
constexpr size_t kMostCommands = 10000;  // a script that waits in a loop starts more
constexpr size_t kLongestRecord = size_t{16} << 20;

// Programs that read and print: the real ones.
constexpr const char* kHarmless[] = {
    "awk",    "basename", "bc",       "cat",      "cut",  "date",  "dirname", "echo", "egrep",
    "env",    "expr",     "false",    "fgrep",    "grep", "head",  "id",      "ls",   "nproc",
    "printf", "pwd",      "readlink", "realpath", "sed",  "seq",   "sort",    "tail", "test",
    "tr",     "true",     "uname",    "uniq",     "wc",   "which", "bash",    "sh"};
// Programs that people look for with `command -v`, or start through others. All that is not found
// anywhere is recorded as well.
constexpr const char* kStandIns[] = {"python",
                                     "python3",
                                     "torchrun",
                                     "ray",
                                     "uv",
                                     "pip",
                                     "pip3",
                                     "accelerate",
                                     "deepspeed",
                                     "srun",
                                     "sbatch",
                                     "nohup",
                                     "timeout",
                                     "sudo",
                                     "docker",
                                     "ssh",
                                     "rm",
                                     "mv",
                                     "cp",
                                     "mkdir",
                                     "touch",
                                     "ln",
                                     "tee",
                                     "sleep",
                                     "git",
                                     "wget",
                                     "curl",
                                     "hf",
                                     "huggingface-cli",
                                     "nvidia-smi",
                                     "hostname",
                                     "kill",
                                     "pkill",
                                     "chmod"};

// Sourced by every bash of the run: a program that is not there is recorded and succeeds; folders
// and files that are not there do not end the script.
constexpr const char* kPrelude = R"(
__braid_record() { printf '%s\0' "$@" > "$BRAID_RECORDS/$EPOCHREALTIME-$BASHPID-$RANDOM"; }
command_not_found_handle() { __braid_record "$@"; return 0; }
source() { if [ -r "$1" ]; then builtin source "$@"; else return 0; fi; }
.() { if [ -r "$1" ]; then builtin source "$@"; else return 0; fi; }
cd() { builtin cd "$@" 2>/dev/null || return 0; }
ulimit() { return 0; }
kill() { return 0; }
wait() { return 0; }
)";

// A question about the accelerator is answered as a machine with GPUs does.
constexpr const char* kStandIn = R"(#!@BASH@ -p
printf '%s\0' "${0##*/}" "$@" > "$BRAID_RECORDS/$EPOCHREALTIME-$BASHPID-$RANDOM"
case "${0##*/}" in
  tee) exec @CAT@ ;;
  python*) case "$*" in *torch_npu*) exit 1 ;; esac ;;
esac
exit 0
)";

std::string found_program(const std::string& name) {
  for (const char* folder : {"/usr/bin/", "/bin/", "/usr/local/bin/"})
    if (path_exists(folder + name)) return folder + name;
  return "";
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

Status write_program(const std::string& path, const std::string& text) {
  BRAID_TRY(write_file_atomic(path, text));
  std::error_code error;
  fs::permissions(path, fs::perms::owner_all, error);
  return error ? Status(Code::kUnavailable, cat(path, ": ", error.message())) : ok_status();
}

Status write_programs(const std::string& folder) {
  BRAID_TRY(make_folder(folder));
  std::error_code error;
  for (const char* name : kHarmless)
    if (const std::string real = found_program(name); !real.empty())
      fs::create_symlink(real, join_path(folder, name), error);
  const std::string text =
      replaced(replaced(kStandIn, "@BASH@", found_program("bash")), "@CAT@", found_program("cat"));
  for (const char* name : kStandIns) BRAID_TRY(write_program(join_path(folder, name), text));
  return ok_status();
}

// The nearest folder around a script that looks like a project's; its own if none does.
std::string project_of(const std::string& script) {
  std::error_code error;
  const fs::path own = fs::absolute(script, error).parent_path();
  for (fs::path folder = own; folder != folder.root_path(); folder = folder.parent_path())
    for (const char* sign : {".git", "pyproject.toml", "setup.py", "requirements.txt"})
      if (fs::exists(folder / sign, error)) return folder.string();
  return own.string();
}

// "NAME" of "…: NAME: unbound variable", or "".
std::string unbound_variable(const std::string& line) {
  const std::string what = ": unbound variable";
  const size_t end = line.find(what);
  if (end == std::string::npos || end == 0) return "";
  const size_t begin = line.rfind(' ', end - 1);
  return line.substr(begin == std::string::npos ? 0 : begin + 1, end - begin - 1);
}

}  // namespace

Status RecordedScript::prepare(const std::string& path) {
  std::error_code error;
  std::string name = (fs::temp_directory_path(error) / "braid-script-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr)
    return {Code::kUnavailable, cat("no scratch folder ", name, ": ", std::strerror(errno))};
  folder_ = std::shared_ptr<const std::string>(new std::string(name), [](const std::string* made) {
    std::error_code ignored;
    fs::remove_all(*made, ignored);
    delete made;
  });
  project_ = project_of(path);
  BRAID_TRY(write_programs(join_path(name, "programs")));
  BRAID_TRY(make_folder(join_path(name, "work")));
  BRAID_TRY(write_file_atomic(join_path(name, "prelude"), kPrelude));
  for (fs::directory_iterator entry(project_, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    fs::create_symlink(entry->path(), fs::path(name) / "work" / entry->path().filename(), ignored);
  }
  return ok_status();
}

// Runs it once; the last line that it printed.
Result<std::string> RecordedScript::start(const std::string& path, const ScriptOptions& options,
                                          const std::map<std::string, std::string>& environment) {
  const std::string records = join_path(*folder_, "records");
  std::error_code error;
  fs::remove_all(records, error);
  BRAID_TRY(make_folder(records));
  std::vector<std::string> argv = {"env",
                                   "-i",
                                   cat("--chdir=", join_path(*folder_, "work")),
                                   cat("PATH=", join_path(*folder_, "programs")),
                                   cat("HOME=", join_path(*folder_, "home")),
                                   "USER=user",
                                   "LANG=C",
                                   cat("BASH_ENV=", join_path(*folder_, "prelude")),
                                   cat("BRAID_RECORDS=", records)};
  for (const auto& [name, value] : environment) argv.push_back(cat(name, "=", value));
  argv.insert(argv.end(),
              {found_program("bash"), "--noprofile", "--norc", fs::absolute(path, error).string()});
  argv.insert(argv.end(), options.arguments.begin(), options.arguments.end());
  BRAID_ASSIGN(const std::unique_ptr<ChildProcess> process, ChildProcess::start({argv}));
  process->close_input();
  const Deadline deadline = deadline_in(options.deadline_s);
  auto line = process->read_line(deadline);
  while (line.ok()) line = process->read_line(deadline);
  const auto ending = process->wait(deadline);
  if (!ending.ok())
    return Status(Code::kDeadline,
                  cat(path, ": is not done after ", options.deadline_s,
                      " s with stand-ins for what it starts; it may wait for them"));
  const std::vector<std::string> errors = split(process->take_errors(), '\n');
  std::string last;
  for (const std::string& said : errors)
    if (!trim(said).empty()) last = said;
  ending_ = cat(*ending, last.empty() ? "" : ": ", last);
  return last;
}

Status RecordedScript::collect() {
  const std::string records = join_path(*folder_, "records");
  BRAID_ASSIGN(std::vector<std::string> names, list_folder(records));
  if (names.size() > kMostCommands) names.resize(kMostCommands);
  commands_.clear();
  for (const std::string& name : names) {
    BRAID_ASSIGN(const std::string text, read_file(join_path(records, name)));
    if (text.size() > kLongestRecord) continue;
    std::vector<std::string> words = split(text, '\0');
    if (!words.empty()) words.pop_back();  // every word ends with a zero
    if (!words.empty()) commands_.push_back(std::move(words));
  }
  return ok_status();
}

Result<RecordedScript> RecordedScript::run(const std::string& path, const ScriptOptions& options) {
  if (!path_exists(path) || is_folder(path)) return not_found(cat(path, ": is no script"));
  if (found_program("bash").empty())
    return not_found("--run-script needs bash, which is not installed");
  RecordedScript out;
  BRAID_TRY(out.prepare(path));
  std::map<std::string, std::string> environment = options.environment;
  for (int attempt = 0; attempt <= kMostUnset; ++attempt) {
    BRAID_ASSIGN(const std::string last, out.start(path, options, environment));
    const std::string name = unbound_variable(last);
    if (name.empty() || !environment.emplace(name, "$" + name).second) break;
    out.unset_.push_back(name);
  }
  BRAID_TRY(out.collect());
  return out;
}

}  // namespace braid
