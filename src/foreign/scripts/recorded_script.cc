#include "foreign/scripts/recorded_script.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "base/text.h"
#include "host/file.h"
#include "host/process.h"

namespace braid::inline foreign_scripts {
namespace {

namespace fs = std::filesystem;

constexpr int kMostAttempts = 32;                       // of supplying what the script lacks
constexpr size_t kMostCommands = 10000;                 // a script that waits in a loop starts more
constexpr int64_t kLargestFile = int64_t{1} << 20;      // of a project that the script sees
constexpr int64_t kLargestProject = int64_t{48} << 20;  // all its files
constexpr size_t kMostFiles = 10000;
constexpr int kDeepestFolder = 12;
constexpr double kLibraries_s = 20;

constexpr const char* kOut = "/.braid/out";
constexpr const char* kRecord = "record-";

// Programs that print, or handle files of the sandbox: copies of the real ones.
constexpr const char* kCopied[] = {
    "[",        "awk",   "basename", "bc",    "cat",   "cp",    "cut",    "date", "dirname",
    "egrep",    "env",   "expr",     "false", "fgrep", "grep",  "head",   "id",   "ln",
    "ls",       "mkdir", "mktemp",   "mv",    "nice",  "nohup", "printf", "pwd",  "readlink",
    "realpath", "rm",    "sed",      "seq",   "sort",  "tail",  "tee",    "test", "timeout",
    "touch",    "tr",    "true",     "uname", "uniq",  "wc",    "which",  "xargs"};

// Sourced by every bash of the run. A program that is not there is recorded and succeeds; folders
// and files that are not there do not end the script. A loop that has slept often enough is left:
// what it waits for never comes. The trace is begun here and not by SHELLOPTS in the environment,
// which would hand the options of a shell ("set -e", "bash -p") on to those that it starts.
constexpr const char* kPrelude = R"sh(
shopt -s expand_aliases
command_not_found_handle() { /.braid/stand-in "$@"; }
source() { if [ -r "$1" ]; then builtin source "$@"; else return 0; fi; }
.() { if [ -r "$1" ]; then builtin source "$@"; else return 0; fi; }
cd() { builtin cd "$@" 2>/dev/null || return 0; }
ulimit() { return 0; }
kill() { return 0; }
__braid_nap() {
  __braid_naps=$((${__braid_naps:-0} + 1))
  if [ "$__braid_naps" -lt 100 ]; then return 1; fi
  __braid_naps=0
  : > /.braid/out/left-a-loop
}
alias sleep='if __braid_nap; then break 1000; fi; : '
set -x
)sh";

// Without the prelude, as -p says. What sbatch would queue is run: the script or the command that
// its words name, else its input, whose output goes to a file of the job.
constexpr const char* kStandIn = R"sh(#!/usr/bin/bash -p
name="${0##*/}"
if [ "$name" = stand-in ]; then name="$1"; shift; fi
case " @WRAPPERS@ " in *" $name "*)
  for ((i = 1; i <= $#; i++)); do
    case "${!i}" in
      bash|sh|*/bash|*/sh) exec /usr/bin/bash "${@:i+1}" ;;
      *.sh) if [ -f "${!i}" ]; then exec /usr/bin/bash "${@:i}"; fi ;;
    esac
  done ;;
esac
find_job() {
  for ((i = 1; i <= $#; i++)); do
    case "${!i}" in
      --wrap=*) job=(-c "${!i#*=}"); return ;;
      --wrap) job=(-c "${@:i+1:1}"); return ;;
      -*) continue ;;
    esac
    if [ -f "${!i}" ]; then job=("${@:i}"); return; fi
    case "${@:i-1:1}" in
      -*=*) return ;;
      -*) ;;  # the value of this option
      *) return ;;
    esac
  done
  text="$(/usr/bin/cat)"
  if [ -n "$text" ]; then job=(-c "$text"); fi
}
if [ "$name" = sbatch ]; then
  job=()
  find_job "$@"
  if [ "${#job[@]}" -gt 0 ]; then
    /usr/bin/bash "${job[@]}" < /dev/null > /dev/null
    case " $* " in *" --parsable "*) echo 1 ;; *) echo Submitted batch job 1 ;; esac
    exit 0
  fi
fi
flag=-; if [ -p /dev/stdout ]; then flag=piped; fi
time="${EPOCHREALTIME:-$(/usr/bin/date +%s.%N)}"
printf '%s\0' "$flag" "$name" "$@" > "/.braid/out/record-$time-$BASHPID-$RANDOM"
gpus=@GPUS@
case "$name" in
  hostname) echo localhost ;;
  whoami) echo user ;;
  scontrol) case "$*" in *hostnames*)
    for ((i = 1; i <= ${SLURM_NNODES:-0}; i++)); do echo "node$i"; done ;; esac ;;
  python*) case "$*" in
    *torch_npu*) exit 1 ;;
    *device_count*) : > /.braid/out/asked-for-gpus; echo "$gpus" ;;
    esac ;;
  nvidia-smi)
    : > /.braid/out/asked-for-gpus
    for ((i = 0; i < gpus; i++)); do
      case "$*" in
        *-L*|*--list-gpus*) echo "GPU $i: GPU (UUID: GPU-$i)" ;;
        *--query-gpu=count*) echo "$gpus" ;;
        *--query-gpu=index*) echo "$i" ;;
        *--query-gpu=*) echo GPU ;;
      esac
    done ;;
esac
exit 0
)sh";

constexpr const char* kShell = "#!/usr/bin/bash -p\nexec /usr/bin/bash \"$@\"\n";

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

// The files that the dynamic loader would map for these programs, itself among them.
Result<std::vector<std::string>> libraries_of(const std::vector<std::string>& programs) {
  std::vector<std::string> argv = {"ldd"}, out;
  argv.insert(argv.end(), programs.begin(), programs.end());
  BRAID_ASSIGN(const std::unique_ptr<ChildProcess> process, ChildProcess::start({argv}));
  process->close_input();
  const Deadline deadline = deadline_in(kLibraries_s);
  for (auto line = process->read_line(deadline); line.ok(); line = process->read_line(deadline)) {
    const size_t begin = line->find('/'), end = line->find(" (0x");
    if (begin != std::string::npos && end != std::string::npos && begin < end)
      out.push_back(line->substr(begin, end - begin));
  }
  return out;
}

// A program as a file of the sandbox; one that is not installed is left out.
Status add_program(const std::string& name, SandboxJob* job, std::vector<std::string>* found) {
  const std::string path = found_program(name);
  if (path.empty()) return ok_status();
  BRAID_ASSIGN(std::string content, read_file(path));
  job->files["/usr/bin/" + name] = {std::move(content), true};
  found->push_back(path);
  return ok_status();
}

Result<SandboxJob> job_with_programs() {
  SandboxJob job;
  std::vector<std::string> found;
  if (found_program("bash").empty())
    return Status(Code::kUnavailable, "no sandbox can be had here (bash is not installed)");
  BRAID_TRY(add_program("bash", &job, &found));
  for (const char* name : kCopied) BRAID_TRY(add_program(name, &job, &found));
  const auto libraries = libraries_of(found);
  if (!libraries.ok())
    return Status(Code::kUnavailable,
                  cat("no sandbox can be had here (ldd: ", libraries.status().message(), ")"));
  for (const std::string& library : *libraries) {
    BRAID_ASSIGN(std::string content, read_file(library));
    job.files[library] = {std::move(content), true};
  }
  job.files["/usr/bin/sh"] = {kShell, true};
  for (const char* folder : {"/bin", "/sbin", "/usr/sbin", "/usr/local/bin"})
    job.links[folder] = "/usr/bin";
  return job;
}

// What a script may read: sources and settings, no data, nothing hidden.
bool is_script_text(const fs::path& path) {
  static const std::set<std::string> kKinds = {
      "",     ".sh",   ".bash", ".yaml", ".yml",  ".py",    ".json",   ".txt",  ".cfg",
      ".env", ".conf", ".toml", ".ini",  ".list", ".slurm", ".sbatch", ".jinja"};
  return kKinds.count(path.extension().string()) > 0;
}

// "NAME" of "…: NAME: unbound variable", or "".
std::string unbound_variable(const std::string& line) {
  const std::string what = ": unbound variable";
  const size_t end = line.find(what);
  if (end == std::string::npos || end == 0) return "";
  const size_t begin = line.rfind(' ', end - 1);
  return line.substr(begin == std::string::npos ? 0 : begin + 1, end - begin - 1);
}

bool is_plain_path(const std::string& word) {
  return word.find('/') != std::string::npos && word.find("..") == std::string::npos &&
         word.back() != '/' && std::all_of(word.begin(), word.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 ||
                  std::string("_./+-").find(static_cast<char>(c)) != std::string::npos;
         });
}

std::string absolute_in(const std::string& work, const std::string& path) {
  return fs::path(path[0] == '/' ? path : join_path(work, path)).lexically_normal().string();
}

// Not what the sandbox makes itself.
bool may_be_supplied(const std::string& path) {
  for (const char* own : {"/.braid", "/proc", "/dev", "/sys", "/bin", "/sbin", "/usr/local/bin"})
    if (path == own || path.rfind(cat(own, "/"), 0) == 0) return false;
  return true;
}

// Programs that a trace of bash names by a path: the first word of a line, and words further on
// that end like a program that there is a stand-in for.
std::set<std::string> traced_programs(const std::string& trace,
                                      const std::vector<std::string>& stand_ins) {
  std::set<std::string> out;
  for (const std::string& line : split(trace, '\n')) {
    if (line.empty() || line[0] != '+') continue;
    const std::vector<std::string> words =
        split(line.substr(std::min(line.size(), line.find_first_not_of("+ "))), ' ');
    for (size_t i = 0; i < words.size(); ++i) {
      if (words[i].empty() || !is_plain_path(words[i])) continue;
      const std::string name = words[i].substr(words[i].rfind('/') + 1);
      if (i == 0 || std::find(stand_ins.begin(), stand_ins.end(), name) != stand_ins.end())
        out.insert(words[i]);
    }
  }
  return out;
}

// PATH of "…: PATH: No such file or directory".
std::set<std::string> lacking_paths(const std::string& errors) {
  std::set<std::string> out;
  const std::string what = ": No such file or directory";
  for (const std::string& line : split(errors, '\n')) {
    const size_t end = line.rfind(what);
    if (end == std::string::npos || end == 0) continue;
    const size_t begin = line.rfind(' ', end - 1);
    const std::string path = line.substr(begin + 1, end - begin - 1);
    if (!path.empty() && is_plain_path(path)) out.insert(path);
  }
  return out;
}

}  // namespace

std::string project_of_script(const std::string& script) {
  std::error_code error;
  const fs::path own = fs::absolute(script, error).lexically_normal().parent_path();
  for (fs::path folder = own; folder != folder.root_path(); folder = folder.parent_path())
    for (const char* sign : {".git", "pyproject.toml", "setup.py", "requirements.txt"})
      if (fs::exists(folder / sign, error)) return folder.string();
  return own.string();
}

// Copies, so that a script may write where its files lie.
void RecordedScript::add_project(const std::string& script) {
  std::error_code error;
  int64_t total = 0;
  fs::recursive_directory_iterator entry(job_.work, error), end;
  for (; !error && entry != end; entry.increment(error)) {
    const fs::path& path = entry->path();
    const bool hidden = path.filename().string()[0] == '.', link = entry->is_symlink(error);
    if (entry->is_directory(error)) {
      if (hidden || link || entry.depth() >= kDeepestFolder) entry.disable_recursion_pending();
      if (!hidden) job_.folders.insert(path.string());
      continue;
    }
    if (hidden || link || !entry->is_regular_file(error) || !is_script_text(path)) continue;
    const auto size = static_cast<int64_t>(entry->file_size(error));
    const bool fits = size <= kLargestFile && total + size <= kLargestProject;
    whole_ = whole_ && fits;
    if (job_.files.size() + job_.folders.size() > kMostFiles) whole_ = false;
    if (!whole_ && job_.files.size() + job_.folders.size() > kMostFiles) break;
    const auto text = fits ? read_file(path.string()) : Result<std::string>(not_found(""));
    if (!text.ok()) continue;
    total += size;
    const bool executable =
        (entry->status(error).permissions() & fs::perms::owner_exec) != fs::perms::none;
    job_.files[path.string()] = {*text, executable};
  }
  if (const auto text = read_file(script); text.ok()) job_.files[script] = {*text, true};
}

Status RecordedScript::prepare(const std::string& path, const ScriptOptions& options) {
  std::error_code error;
  const std::string script = fs::absolute(path, error).lexically_normal().string();
  static const Result<SandboxJob> programs = job_with_programs();  // the same for all scripts
  if (!programs.ok()) return programs.status();
  job_ = *programs;
  job_.work = project_of_script(script);
  job_.collected = kOut;
  job_.errors = cat(kOut, "/errors");
  job_.trace = cat(kOut, "/trace");
  job_.deadline_s = options.deadline_s;
  job_.memory_bytes = options.memory_bytes;
  for (const std::string& folder :
       {std::string(kOut), std::string("/tmp"), std::string("/home/user"), job_.work})
    job_.folders.insert(folder);
  stand_in_ = replaced(replaced(kStandIn, "@WRAPPERS@", join(options.wrappers, " ")), "@GPUS@",
                       cat(options.gpus));
  for (const std::string& name : options.stand_ins)
    job_.files.emplace("/usr/bin/" + name, SandboxFile{stand_in_, true});
  job_.files["/.braid/stand-in"] = {stand_in_, true};
  job_.files["/.braid/prelude"] = {kPrelude, false};
  add_project(script);
  job_.argv = {"/usr/bin/bash", "--noprofile", "--norc", script};
  job_.argv.insert(job_.argv.end(), options.arguments.begin(), options.arguments.end());
  return ok_status();
}

// Runs it once.
Status RecordedScript::start(const std::string& path, const ScriptOptions& options,
                             const std::map<std::string, std::string>& environment) {
  job_.environment = {"PATH=/usr/local/bin:/usr/bin:/bin",
                      "HOME=/home/user",
                      "USER=user",
                      "LANG=C",
                      "PS4=+ ",
                      cat("BASH_XTRACEFD=", kTraceDescriptor),
                      "BASH_ENV=/.braid/prelude"};
  for (const auto& [name, value] : environment) job_.environment.push_back(cat(name, "=", value));
  BRAID_ASSIGN(const SandboxResult result, run_in_sandbox(job_));
  collect(result.files);
  stopped_ = result.stopped.empty() ? "" : cat(path, " ", result.stopped);
  ending_ = result.stopped.empty() ? result.ending : result.stopped;
  if (!last_line_.empty()) ending_ += cat(": ", last_line_);
  supply_what_lacked(result.files, options.stand_ins);
  return ok_status();
}

// Stand-ins where the script named a program by a path, and folders for files that it could not
// write.
void RecordedScript::supply_what_lacked(const std::map<std::string, std::string>& files,
                                        const std::vector<std::string>& stand_ins) {
  const auto text = [&](const char* name) {
    const auto found = files.find(name);
    return found == files.end() ? std::string() : found->second;
  };
  supplied_ = false;
  const std::set<std::string> programs = traced_programs(text("trace"), stand_ins);
  for (const std::string& program : programs) {
    const std::string place = absolute_in(job_.work, program);
    if (!may_be_supplied(place) || job_.folders.count(place) > 0) continue;
    supplied_ |= job_.files.emplace(place, SandboxFile{stand_in_, true}).second;
  }
  for (const std::string& lacking : lacking_paths(text("errors"))) {
    if (programs.count(lacking) > 0) continue;
    const std::string folder = fs::path(absolute_in(job_.work, lacking)).parent_path().string();
    if (may_be_supplied(folder) && job_.files.count(folder) == 0)
      supplied_ |= job_.folders.insert(folder).second;
  }
}

void RecordedScript::collect(const std::map<std::string, std::string>& files) {
  commands_.clear();
  last_line_.clear();
  for (const auto& [name, text] : files) {
    if (name.rfind(kRecord, 0) != 0 || commands_.size() >= kMostCommands) continue;
    std::vector<std::string> words = split(text, '\0');
    if (!words.empty()) words.pop_back();  // every word ends with a zero
    if (words.size() < 2) continue;
    const bool piped = words.front() == "piped";
    words.erase(words.begin());
    commands_.push_back({std::move(words), piped});
  }
  asked_ = files.count("asked-for-gpus") > 0;
  left_ = files.count("left-a-loop") > 0;
  const auto errors = files.find("errors");
  if (errors == files.end()) return;
  for (const std::string& said : split(errors->second, '\n'))
    if (!trim(said).empty()) last_line_ = said;
}

Result<RecordedScript> RecordedScript::run(const std::string& path, const ScriptOptions& options) {
  if (!path_exists(path) || is_folder(path)) return not_found(cat(path, ": is no script"));
  RecordedScript out;
  BRAID_TRY(out.prepare(path, options));
  std::map<std::string, std::string> environment = options.environment;
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    const Status started = out.start(path, options, environment);
    if (!started.ok() && attempt > 0)
      break;  // what was supplied does not fit: the run before counts
    BRAID_TRY(started);
    const std::string name = unbound_variable(out.last_line_);
    const bool unset = !name.empty() && environment.emplace(name, "$" + name).second;
    if (unset) out.unset_.push_back(name);
    if (!out.stopped_.empty() || (!unset && !out.supplied_)) break;
  }
  return out;
}

}  // namespace braid::inline foreign_scripts
