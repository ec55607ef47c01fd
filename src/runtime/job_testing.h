// Shared by tests of jobs of several ranks: plans for the processes of one machine, the ranks of a
// job that runs.
#pragma once

#include "runtime/process_testing.h"

namespace braid {

struct LayoutCase {
  std::string name, algorithm, devices;
  std::string calls;  // lines of the plan below `calls:`
  bool full = false;  // in the full tier alone
};

// The lines of a plan in which every call has one layout.
inline std::string everywhere(const std::string& algorithm, const std::string& generate,
                              const std::string& passes, const std::string& trains = "") {
  std::string out = "  generate: {mesh: all, " + generate + "}\n";
  std::vector<std::string> calls = {"old_logprob", "ref_logprob", "update_actor"};
  if (algorithm == "ppo") calls.insert(calls.end(), {"values", "update_critic"});
  for (const std::string& call : calls) {
    const bool updates = !trains.empty() && call.rfind("update_", 0) == 0;
    out += cat("  ", call, ": {mesh: all, ", passes, updates ? ", " + trains : "", "}\n");
  }
  return out;
}

// Processes whose parent is `pid`.
inline std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> out;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const auto stat = read_file(entry.path().string() + "/stat");
    if (!stat.ok()) continue;
    // "PID (NAME) STATE PARENT ...": the name may hold anything but ends with the last ')'.
    const std::string rest = stat->substr(stat->rfind(')') + 4);
    if (std::stol(rest) == pid) out.push_back(std::stoi(entry.path().filename().string()));
  }
  return out;
}

class JobRun : public RunProcess {
 protected:
  static std::vector<std::string> job_command(const std::string& name, const std::string& algorithm,
                                              const std::vector<std::string>& more) {
    std::vector<std::string> options = {
        "rollout.samples_per_prompt=2", "optim.actor.name=sgd",     "optim.critic.name=sgd",
        "optim.actor.lr=0.05",          "optim.critic.lr=0.05",     "train.threads=1",
        "train.total_steps=5",          "checkpoint.every_steps=0", "data.max_prompt_length=64"};
    options.insert(options.end(), more.begin(), more.end());
    return command(name, algorithm, options);
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
    const std::string text =
        "graph: " + layout.algorithm + "\ndevices: " + layout.devices + "\ncalls:\n" + layout.calls;
    EXPECT_TRUE(make_folder(folder_).ok());
    EXPECT_TRUE(write_file_atomic(file, text).ok());
    return file;
  }
};

}  // namespace braid
