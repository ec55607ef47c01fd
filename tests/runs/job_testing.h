// Shared by tests of jobs of several ranks: plans for the processes of one machine, the ranks of a
// job that runs.
#pragma once

#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "batching/sampling_messages.h"
#include "checkpoint/checkpoint_reader.h"
#include "comm/position.h"
#include "dataflow/graph.h"
#include "nn/safetensors.h"
#include "runs/process_testing.h"

namespace braid {

struct LayoutCase {
  std::string name, algorithm, devices;  // algorithm: a kind of run
  std::string calls;                     // lines of the plan below `calls:`
  bool full = false;                     // in the full tier alone
  std::vector<std::string> more = {};    // configuration
};

// The lines of a plan in which every call has one layout.
inline std::string everywhere(const std::string& algorithm, const std::string& generate,
                              const std::string& passes, const std::string& trains = "") {
  AlgorithmOptions options = default_options(algorithm_of(algorithm));
  if (options.kl.coef == 0)
    options.kl.coef = 0.01;  // as RunProcess has it: every plan has the reference
  std::string out;
  const Graph graph = *make_graph(options);
  for (const Call& call : graph.calls) {
    if (!uses_model(call)) continue;
    const bool updates = !trains.empty() && call.kind == CallKind::kTrainStep;
    out +=
        cat("  ", call.name, ": {mesh: all, ", call.kind == CallKind::kGenerate ? generate : passes,
            updates ? ", " + trains : "", "}\n");
  }
  return out;
}

// A function that scores sample by sample, asked about by each rank that has generated some.
inline std::string reward_file(const std::string& path, const std::string& fails) {
  EXPECT_TRUE(write_file_atomic(path, cat("import os\n"
                                          "def compute_score(data_source, solution_str, "
                                          "ground_truth, extra_info):\n    if ",
                                          fails,
                                          ": raise ValueError('no answer')\n"
                                          "    return {'score': len(solution_str) / 3, 'odd': "
                                          "len(solution_str) % 2}\n"))
                  .ok());
  return cat("{type: python, name: length, path: ", path,
             ", function: compute_score, signature: verl");
}

// Processes whose parent is `pid`.
inline std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> out;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const auto stat = read_file(entry.path().string() + "/stat");
    if (!stat.ok()) continue;
    const std::string rest = stat->substr(stat->rfind(')') + 4);  // after its state
    if (std::stol(rest) == pid) out.push_back(std::stoi(entry.path().filename().string()));
  }
  return out;
}

// The state letter of a process in /proc/PID/stat; 0 where there is none.
inline char process_letter(pid_t pid) {
  const auto stat = read_file(cat("/proc/", pid, "/stat"));
  // "PID (NAME) STATE PARENT ...": the name may hold anything but ends with the last ')'.
  return stat.ok() && !stat->empty() ? (*stat)[stat->rfind(')') + 2] : char{0};
}

// A rank of a job that runs, and where it is.
struct WatchedRank {
  pid_t pid = -1;
  std::optional<PositionView> view;

  std::string position() {
    if (!view) view = PositionView::open(pid);
    return view ? view->text() : "";
  }

  // Stops the rank (SIGSTOP) where it is at one of these positions; false where the job ends
  // before.
  bool stop_at(const std::function<bool(const std::string& position)>& wanted, ChildProcess& job) {
    for (int looks = 0; looks % 256 != 0 || !job.wait(deadline_in(0)).ok(); ++looks) {
      if (!wanted(position())) {
        std::this_thread::yield();
        continue;
      }
      if (stop() && wanted(position())) return true;  // it had gone on meanwhile
      ::kill(pid, SIGCONT);
    }
    return false;
  }

  // Whether it is stopped, and has not ended.
  bool stop() const {
    ::kill(pid, SIGSTOP);
    char state = process_letter(pid);
    while (state != 0 && state != 'T' && state != 'Z') state = process_letter(pid);
    return state == 'T';
  }
};

using Tensors = std::map<std::string, at::Tensor>;

inline Tensors tensors_of(const std::string& path) {
  Tensors out;
  auto file = SafetensorsFile::open(path);
  EXPECT_TRUE(file.ok()) << file.status().message();
  for (const auto& [name, entry] : file->entries()) out[name] = *file->read(name);
  return out;
}

// Of a checkpoint a group of tensors in whole, whichever ranks wrote them.
inline Tensors tensors_of_checkpoint(const std::string& folder, const std::string& group) {
  auto saved = CheckpointReader::open(folder);
  EXPECT_TRUE(saved.ok()) << saved.status().message();
  const auto whole = saved->whole(group);
  EXPECT_TRUE(whole.ok()) << whole.status().message();
  return {whole->begin(), whole->end()};
}

// Of an exported model.
inline Tensors weights_of(const std::string& folder) {
  return tensors_of(join_path(folder, "model.safetensors"));
}

inline constexpr double kEquivalence = 1e-5;  // relative; of tensors L2
inline constexpr double kClipped = 0.1;

class JobRun : public RunProcess {
 protected:
  // Every call of the jobs compares what it sends with what its ops list.
  JobRun() { ::setenv("BRAID_CHECK_TRANSFERS", "1", 1); }

  static std::vector<std::string> job_command(const std::string& name, const std::string& algorithm,
                                              const std::vector<std::string>& more) {
    std::vector<std::string> options = {
        "rollout.samples_per_prompt=2", "optim.actor.name=sgd",     "optim.critic.name=sgd",
        "optim.actor.lr=0.05",          "optim.critic.lr=0.05",     "train.threads=1",
        "train.total_steps=5",          "checkpoint.every_steps=0", "data.max_prompt_length=64"};
    if (algorithm_of(algorithm) == "rm")
      options.insert(options.end(), {"optim.reward.name=sgd", "optim.reward.lr=0.01"});
    options.insert(options.end(), more.begin(), more.end());
    return command(name, algorithm, options);
  }

  // The recorded rollouts of a run in one process, and that run's name.
  static std::string recorded(const std::string& algorithm, const std::string& family) {
    const std::string name = cat("one-", algorithm, "-", family);
    if (!path_exists(path(name + "/export")))
      finish(job_command(
          name, algorithm,
          with_model(family, generates(*make_graph(default_options(algorithm_of(algorithm))))
                                 ? std::vector<std::string>{"rollout.record=true"}
                                 : std::vector<std::string>{})));
    return name;
  }

  // Adds a model of a family with random weights and four layers, or seven as "qwen2-7"; "" is the
  // model of the quickstart. As "qwen2-wide" its vocabulary is so large that two ranks draw from
  // parts of it, of which the tokenizer has the first tokens.
  static std::vector<std::string> with_model(const std::string& family,
                                             std::vector<std::string> options) {
    if (family.empty()) return options;
    if (family.rfind("lora", 0) == 0) {  // adapters need trained weights below them
      const bool dropout = family == "lora-dropout";
      const std::string targets = family == "lora" || dropout ? "[all-linear]"
                                  : family == "lora-head"     ? "[lm_head]"
                                                              : "[q_proj, v_proj, lm_head]";
      options.insert(options.end(), {"lora.rank=4", "lora.targets=" + targets,
                                     cat("lora.dropout=", dropout ? 0.2 : 0.0),
                                     "model.path=" + path(recorded("ppo", "") + "/export/actor")});
      return options;
    }
    const std::string file = path(family + ".config.json");
    Json config = *parse_json(*read_file(cat(BRAID_SOURCE_DIR, "/tests/data/models/",
                                             family.substr(0, family.find('-')), "/config.json")),
                              family);
    const int layers = family.ends_with("-7") ? 7 : 4;
    const bool wide = family.ends_with("-wide");
    config["vocab_size"] = wide ? 2 * kFewestShared + 5 : 41;  // of the quickstart's tokenizer
    for (const char* key : {"torch_dtype", "dtype"})  // an export in 16 bits would hide differences
      if (config.contains(key)) config[key] = "float32";
    config[config.contains("n_layer") ? "n_layer" : "num_hidden_layers"] = layers;
    if (config.contains("layer_types")) {
      const auto kinds = config["layer_types"].get<std::vector<std::string>>();
      config["layer_types"] = Json::array();
      for (int i = 0; i < layers; ++i) config["layer_types"].push_back(kinds[i % kinds.size()]);
    }
    EXPECT_TRUE(make_folder(folder_).ok());
    EXPECT_TRUE(write_file_atomic(file, config.dump()).ok());
    options.push_back("model.config=" + file);
    return options;
  }

  // Waits for so many steps of a run; false where the process ends before.
  static bool reaches(const std::string& name, int64_t steps, ChildProcess& child) {
    std::string said;  // read on, or a full pipe would hold the run up
    while (steps_complete(name) < steps) {
      const bool ended = child.wait(deadline_in(0.01)).ok();
      said = child.take_errors();
      if (!ended) continue;
      ADD_FAILURE() << said;
      return false;
    }
    return true;
  }

  static std::string write_plan(const LayoutCase& layout) {
    const std::string file = path(layout.name + ".plan.yaml");
    const std::string text = "graph: " + algorithm_of(layout.algorithm) +
                             "\ndevices: " + layout.devices + "\ncalls:\n" + layout.calls;
    EXPECT_TRUE(make_folder(folder_).ok());
    EXPECT_TRUE(write_file_atomic(file, text).ok());
    return file;
  }

  // The rows of two runs, but for what a rounding may change.
  static void expect_same_metrics(const std::string& a, const std::string& b) {
    const auto left = metrics(a), right = metrics(b);
    ASSERT_EQ(left.size(), right.size());
    for (size_t step = 0; step < left.size(); ++step)
      for (const auto& [key, value] : left[step].items()) {
        ASSERT_TRUE(right[step].contains(key)) << key;
        if (!value.is_number()) continue;
        const double one = value.get<double>(), several = right[step][key].get<double>();
        // A share of tokens beyond a limit: those on it may fall on either side.
        const double counted = key.ends_with("clipfrac") ? kClipped : 0;
        EXPECT_NEAR(several, one, counted + kEquivalence * std::max(1.0, std::abs(one)))
            << key << " of step " << step;
      }
  }
};

}  // namespace braid
