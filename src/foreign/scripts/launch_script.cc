#include "foreign/scripts/launch_script.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <optional>

#include "base/text.h"
#include "foreign/scripts/recorded_script.h"
#include "foreign/shell/shell.h"
#include "host/file.h"

namespace braid::inline foreign_scripts {
namespace {

namespace fs = std::filesystem;

constexpr int kUsualGpus = 8;                         // of a node
constexpr int64_t kLargestSource = int64_t{1} << 20;  // that the text reader reads

using Words = std::vector<std::string>;

// What a script would start, by either way.
struct Started {
  std::vector<Words> commands;
  std::vector<std::string> unset, notes;
  std::string ending;
};

struct ScriptFacts {
  std::string path, text, project;
  std::map<std::string, std::string> environment, slurm;
  int gpus = kUsualGpus;
  bool gpus_stated = false;
};

ScriptFacts facts_of(const std::string& path, const std::string& text,
                     const LaunchScriptOptions& options) {
  ScriptFacts out;
  std::error_code error;
  out.path = fs::absolute(path, error).lexically_normal().string();
  out.text = text;
  out.project = project_of_script(path);
  out.environment = out.slurm = foreign::slurm_variables(text);
  for (const std::string& item : options.variables)
    out.environment[item.substr(0, item.find('='))] = item.substr(item.find('=') + 1);
  int64_t gpus = 0;
  const auto said = out.slurm.find("SLURM_GPUS_PER_NODE");
  if (options.gpus_per_node > 0)
    out.gpus = options.gpus_per_node;
  else if (said != out.slurm.end() && parse_int(said->second, &gpus) && gpus > 0 && gpus < 1025)
    out.gpus = static_cast<int>(gpus);
  out.gpus_stated = options.gpus_per_node > 0 || gpus > 0;
  return out;
}

// A path inside the script's project without hidden parts, or nothing: what the sandbox shows too.
std::optional<std::string> shown_path(const std::string& project, const std::string& path) {
  const std::string whole =
      fs::path(path[0] == '/' ? path : join_path(project, path)).lexically_normal().string();
  const bool inside = whole.rfind(project + "/", 0) == 0;
  if (!inside || whole.find("/.", project.size()) != std::string::npos) return std::nullopt;
  return whole;
}

std::optional<std::string> project_text(const std::string& project, const std::string& path) {
  const auto shown = shown_path(project, path);
  std::error_code error;
  if (!shown || !fs::is_regular_file(*shown, error) ||
      fs::file_size(*shown, error) > static_cast<uintmax_t>(kLargestSource))
    return std::nullopt;
  const auto text = read_file(*shown);
  return text.ok() ? std::optional(*text) : std::nullopt;
}

void note_gpus(const ScriptFacts& facts, bool asked, Started* out) {
  if (asked)
    out->notes.push_back(cat("the script asks how many GPUs there are; answered with ", facts.gpus,
                             facts.gpus_stated ? "" : ", --gpus-per-node says another number"));
}

// Programs whose output is used and that no stand-in has an answer for.
bool prints_something(const Words& words) {
  static const std::vector<std::string> kAnswered = {"hostname", "whoami", "nvidia-smi", "scontrol",
                                                     "sleep"};
  static const std::vector<std::string> kAsked = {"squeue", "git", "rocm-smi", "npu-smi", "curl",
                                                  "wget",   "jq",  "ps",       "pgrep",   "ssh"};
  const std::string& name = words.front();
  if (name.rfind("python", 0) == 0)
    return words.size() > 1 && words[1] == "-c" &&
           words.back().find("device_count") == std::string::npos;
  return std::find(kAsked.begin(), kAsked.end(), name) != kAsked.end();
}

Result<Started> run_script(const ScriptFacts& facts) {
  ScriptOptions options;
  options.environment = facts.environment;
  options.stand_ins = foreign::stand_in_programs();
  options.wrappers = foreign::wrapper_programs();
  options.gpus = facts.gpus;
  BRAID_ASSIGN(const RecordedScript script, RecordedScript::run(facts.path, options));
  Started out;
  out.notes.push_back("the script was run in a sandbox, with stand-ins for what it starts");
  for (const RecordedCommand& command : script.commands()) {
    out.commands.push_back(command.words);
    if (command.piped && prints_something(command.words))
      out.notes.push_back(cat("what `", join(command.words, " ").substr(0, 70),
                              "` prints is not known; taken as nothing"));
  }
  out.unset = script.unset_variables();
  out.ending = script.ending();
  note_gpus(facts, script.asked_for_gpus(), &out);
  if (script.left_a_loop())
    out.notes.push_back("a loop that only waits was left after sleeping 100 times");
  if (!script.stopped().empty())
    out.notes.push_back(
        cat(script.stopped(), " in the sandbox; what it started until then counts"));
  if (!script.saw_all_files())
    out.notes.push_back("the script's project is too large to be shown to it whole");
  return out;
}

Result<Started> read_script(const ScriptFacts& facts) {
  foreign::ShellOptions options;
  options.name = facts.path;
  options.folder = facts.project;
  options.environment = facts.environment;
  options.gpus = facts.gpus;
  options.read = [&](const std::string& path) { return project_text(facts.project, path); };
  options.is_folder = [&](const std::string& path) {
    const auto shown = shown_path(facts.project, path);
    return shown && is_folder(*shown);
  };
  BRAID_ASSIGN(const foreign::ShellReading reading,
               foreign::read_shell(facts.text, options).at(facts.path));
  Started out;
  out.notes.push_back("the script was read as text; nothing was run");
  out.notes.insert(out.notes.end(), reading.assumptions.begin(), reading.assumptions.end());
  out.commands = reading.commands;
  out.unset = reading.unset;
  out.ending = reading.ending.empty() ? "came to its end" : cat("ended at ", reading.ending);
  note_gpus(facts, reading.asked_for_gpus, &out);
  return out;
}

// "a,b" outside brackets and quotes.
std::vector<std::string> swept_values(const std::string& value) {
  std::vector<std::string> out(1);
  int depth = 0;
  char quote = '\0';
  for (const char c : value) {
    if (quote == '\0' && (c == '\'' || c == '"'))
      quote = c;
    else if (c == quote)
      quote = '\0';
    if (std::string("[{(").find(c) != std::string::npos) ++depth;
    if (std::string("]})").find(c) != std::string::npos) --depth;
    if (c == ',' && depth == 0 && quote == '\0')
      out.emplace_back();
    else
      out.back() += c;
  }
  return out;
}

// Of a sweep of hydra the first run.
Words without_sweep(Words words, std::vector<std::string>* notes) {
  const auto module = std::find(words.begin(), words.end(), "-m");
  const bool sweeps =
      std::find(words.begin(), words.end(), "--multirun") != words.end() ||
      (module != words.end() && std::find(module + 1, words.end(), "-m") != words.end());
  if (!sweeps) return words;
  size_t runs = 1;
  std::vector<std::string> swept;
  for (std::string& word : words) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos || word[0] == '-') continue;
    const std::vector<std::string> values = swept_values(word.substr(equals + 1));
    if (values.size() < 2) continue;
    swept.push_back(word);
    runs *= values.size();
    word = cat(word.substr(0, equals + 1), values.front());
  }
  if (!swept.empty())
    notes->push_back(
        cat("a sweep of ", runs, " runs (", join(swept, ", "), "); the first is planned"));
  return words;
}

// The first launch of RL training among the commands: itself, or inside a command line that another
// program would run.
ForeignKeys launch_of(const Framework& framework, const Started& started, int* launches,
                      std::vector<std::string>* notes) {
  ForeignKeys first;
  for (const Words& words : started.commands) {
    Words launch = words;
    ForeignKeys keys = framework.launch_keys(words);
    for (size_t i = 0; keys.empty() && i < words.size(); ++i) {
      if (words[i].find_first_of(" \n") == std::string::npos) continue;
      const auto inner = foreign::shell_words(words[i]);
      if (inner.ok()) keys = framework.launch_keys(*inner);
      if (!keys.empty()) launch = *inner;
    }
    if (keys.empty()) continue;
    if (++*launches == 1) first = framework.launch_keys(without_sweep(launch, notes));
  }
  return first;
}

// The first of the paths that is a file of the script's project, with its text.
std::optional<std::pair<std::string, std::string>> project_file(
    const ScriptFacts& facts, const std::vector<std::string>& paths) {
  for (const std::string& path : paths)
    if (const auto text = project_text(facts.project, path)) return std::pair(path, *text);
  return std::nullopt;
}

// With the configuration file that the launch or its program names, where it lies in the script's
// project.
Result<ForeignKeys> with_its_file(const Framework& framework, const ScriptFacts& facts,
                                  ForeignKeys launch) {
  if (const auto program = project_file(facts, framework.program_files(launch)))
    launch.merge(framework.program_keys(program->second));
  const auto file = project_file(facts, framework.config_files(launch));
  return file ? with_config_file(framework, file->second, file->first, launch)
              : Result<ForeignKeys>(launch);
}

// A header for more nodes than the training is told of, or fewer.
void note_nodes(const ScriptFacts& facts, const ForeignKeys& keys,
                std::vector<std::string>* notes) {
  const auto asked = facts.slurm.find("SLURM_NNODES");
  if (asked == facts.slurm.end()) return;
  const auto told = keys.find("trainer.nnodes");
  const auto gpus = facts.slurm.find("SLURM_GPUS_PER_NODE");
  notes->push_back(cat("read as a Slurm job of ", asked->second, " nodes",
                       gpus == facts.slurm.end() ? "" : cat(" with ", gpus->second, " GPUs each"),
                       ", as its #SBATCH lines say"));
  if (told != keys.end() && told->second != asked->second)
    notes->push_back(cat("the #SBATCH lines ask for ", asked->second,
                         " nodes, the training is told of trainer.nnodes=", told->second));
}

// Arguments alone, as `braid plan --export` writes them: KEY=VALUE with a dot in KEY, flags,
// comments.
bool holds_arguments_alone(const std::string& text) {
  bool any = false;
  for (const std::string& line : split(text, '\n')) {
    const std::string item(trim(line));
    if (item.empty() || item.front() == '#') continue;
    const std::string key = item.substr(0, item.find_first_of("= "));
    const bool is_key = key.size() < item.size() && item[key.size()] == '=' &&
                        key.find('.') != std::string::npos && key.find('/') == std::string::npos;
    if (!is_key && item.rfind("--", 0) != 0) return false;
    any = true;
  }
  return any;
}

}  // namespace

bool is_launch_script(const std::string& path, const std::string& text) {
  if (holds_arguments_alone(text)) return false;
  for (const char* end : {".sh", ".bash", ".slurm", ".sbatch"})
    if (path.ends_with(end)) return true;
  const std::string first = text.substr(0, text.find('\n'));
  return first.rfind("#!", 0) == 0 && first.find("sh") != std::string::npos;
}

bool is_script_variable(const std::string& item) {
  const std::string name = item.substr(0, item.find('='));
  return !name.empty() && name.size() < item.size() &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isupper(c) != 0 || std::isdigit(c) != 0 || c == '_';
         });
}

Result<LaunchScript> read_launch_script(const Framework& framework, const std::string& path,
                                        const std::string& text,
                                        const LaunchScriptOptions& options) {
  const ScriptFacts facts = facts_of(path, text, options);
  LaunchScript out;
  out.way = options.way == "text" ? "text" : "sandbox";
  Result<Started> started = out.way == "text" ? read_script(facts) : run_script(facts);
  if (!started.ok() && started.status().code() == Code::kUnavailable && options.way.empty()) {
    out.way = "text";
    const std::string why = started.status().message();
    started = read_script(facts);
    if (started.ok()) started->notes.front() += cat(": ", why);
  }
  if (!started.ok()) return started.status();
  out.notes = started->notes;
  int launches = 0;
  const ForeignKeys launch = launch_of(framework, *started, &launches, &out.notes);
  if (launch.empty())
    return invalid_input(cat(
        path, ": starts no RL training of ", framework.name, "; it started ",
        started->commands.size(), started->commands.size() == 1 ? " program" : " programs", " and ",
        started->ending, "; give it what it asks for as NAME=value, or import the arguments"));
  if (launches > 1)
    out.notes.push_back(cat(path, " starts ", launches, " trainings; the first is planned"));
  for (const std::string& name : started->unset)
    out.notes.push_back(
        name.ends_with(']')
            ? cat(path, " uses the array ", name, ", which nothing sets; taken as empty")
            : cat(path, " needs the variable ", name, "; give ", name, "=value"));
  out.stated = launch;
  BRAID_ASSIGN(out.keys, with_its_file(framework, facts, launch));
  note_nodes(facts, out.keys, &out.notes);
  return out;
}

}  // namespace braid::inline foreign_scripts
