#include "comm/membership.h"

#include <algorithm>
#include <cstdlib>

#include "base/number_runs.h"
#include "base/text.h"
#include "comm/name_hash.h"

namespace braid::inline comm {
namespace {

constexpr int64_t kDerivedPortBase = 20000, kDerivedPorts = 20000;

// Reads variables of one starter and keeps the first mistake.
class VariableReader {
 public:
  VariableReader(const Environment& environment, std::string starter)
      : environment_(environment), starter_(std::move(starter)) {}

  int64_t number(const std::string& name, int64_t least, int64_t most) {
    const auto text = environment_(name);
    int64_t value = least;
    if (!text) {
      fail(cat("the environment of ", starter_, " lacks ", name));
    } else if (!parse_int(*text, &value) || value < least || value > most) {
      fail(cat(name, " is '", *text, "', expected a whole number from ", least, " to ", most));
      value = least;
    }
    return value;
  }
  int64_t number_or(const std::string& name, int64_t least, int64_t most, int64_t fallback) {
    return environment_(name) ? number(name, least, most) : fallback;
  }
  std::string text(const std::string& name) {
    const auto value = environment_(name);
    if (!value || value->empty()) fail(cat("the environment of ", starter_, " lacks ", name));
    return value.value_or("");
  }
  void fail(std::string message) {
    if (status_.ok()) status_ = invalid_input(std::move(message));
  }
  const Status& status() const { return status_; }

 private:
  const Environment& environment_;
  std::string starter_;
  Status status_;
};

constexpr int64_t kMostRanks = 1 << 20, kMostPorts = 65535;

// What a rank needs to know, and who says it.
Status check_standard(const Environment& environment) {
  const std::vector<std::string> needed = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR",
                                           "MASTER_PORT"};
  std::vector<std::string> there, missing;
  for (const std::string& name : needed)
    (environment(name).value_or("").empty() ? missing : there).push_back(name);
  if (missing.empty()) return {};
  return invalid_input(cat("the environment has ", join(there, ", "), ", but not ",
                           join(missing, ", "),
                           "; a rank needs all of them (torchrun sets them). Without RANK and "
                           "WORLD_SIZE braid starts the ranks itself"));
}

// RANK, WORLD_SIZE, ... as torchrun and Braid's own launcher set them.
Result<std::optional<Membership>> read_standard(const Environment& environment) {
  Membership out;
  const bool own = environment("BRAID_LAUNCHER").has_value();
  const auto elastic = environment("TORCHELASTIC_RUN_ID");
  out.started_by = own ? kOwnLauncher : (elastic ? "torchrun" : "the environment");
  BRAID_TRY(check_standard(environment));
  VariableReader read(environment, out.started_by);
  out.world_size = read.number("WORLD_SIZE", 1, kMostRanks);
  out.global_rank = read.number("RANK", 0, out.world_size - 1);
  out.local_rank = read.number("LOCAL_RANK", 0, out.world_size - 1);
  out.local_size =
      read.number_or("LOCAL_WORLD_SIZE", out.local_rank + 1, out.world_size, out.local_rank + 1);
  out.master_host = read.text("MASTER_ADDR");
  out.master_port = read.number("MASTER_PORT", 1, kMostPorts);
  const auto agent_store = environment("TORCHELASTIC_USE_AGENT_STORE");
  out.store_exists = own || (elastic && agent_store.value_or("True") == "True");
  out.attempt =
      cat(elastic.value_or("run"), "-", environment("TORCHELASTIC_RESTART_COUNT").value_or("0"));
  BRAID_TRY(read.status());
  return std::optional<Membership>(out);
}

// A port that all ranks of one job derive alike.
int64_t derived_port(const std::string& job) {
  return kDerivedPortBase + static_cast<int64_t>(name_hash(job) % kDerivedPorts);
}

Result<std::optional<Membership>> read_slurm(const Environment& environment) {
  VariableReader read(environment, "srun");
  Membership out;
  out.started_by = "srun";
  out.world_size = read.number("SLURM_STEP_NUM_TASKS", 1, kMostRanks);
  out.global_rank = read.number("SLURM_PROCID", 0, out.world_size - 1);
  out.local_rank = read.number("SLURM_LOCALID", 0, out.world_size - 1);
  const int64_t nodes = read.number_or("SLURM_STEP_NUM_NODES", 1, kMostRanks, 1);
  // "4(x2),3": ranks of each node; only nodes with equal numbers tell it without the node's index.
  const std::string tasks = environment("SLURM_STEP_TASKS_PER_NODE").value_or("");
  int64_t here = 0;
  const bool equal = tasks.find(',') == std::string::npos &&
                     parse_int(tasks.substr(0, tasks.find('(')), &here) &&
                     here * nodes == out.world_size;
  out.local_size = nodes == 1 ? out.world_size : (equal ? here : out.local_rank + 1);
  if (const auto host = environment("MASTER_ADDR")) {
    out.master_host = *host;
  } else if (nodes > 1) {
    BRAID_ASSIGN(out.master_host,
                 first_slurm_host(read.text("SLURM_STEP_NODELIST")).at("SLURM_STEP_NODELIST"));
  }
  const std::string job = cat(environment("SLURM_JOB_ID").value_or("0"), ".",
                              environment("SLURM_STEP_ID").value_or("0"));
  out.master_port = read.number_or("MASTER_PORT", 1, kMostPorts, derived_port(job));
  out.attempt = cat(job, "-", environment("SLURM_RESTART_COUNT").value_or("0"));
  BRAID_TRY(read.status());
  return std::optional<Membership>(out);
}

Result<std::optional<Membership>> read_open_mpi(const Environment& environment) {
  VariableReader read(environment, "mpirun");
  Membership out;
  out.started_by = "mpirun";
  out.world_size = read.number("OMPI_COMM_WORLD_SIZE", 1, kMostRanks);
  out.global_rank = read.number("OMPI_COMM_WORLD_RANK", 0, out.world_size - 1);
  out.local_rank = read.number("OMPI_COMM_WORLD_LOCAL_RANK", 0, out.world_size - 1);
  out.local_size = read.number("OMPI_COMM_WORLD_LOCAL_SIZE", 1, out.world_size);
  if (const auto host = environment("MASTER_ADDR")) {
    out.master_host = *host;
  } else if (!out.one_machine()) {
    read.fail(
        "mpirun over several machines does not say where rank 0 runs; pass "
        "-x MASTER_ADDR=<host of rank 0> and -x MASTER_PORT=<a free port>");
  }
  const auto job = environment("PMIX_NAMESPACE");
  if (!job && !environment("MASTER_PORT"))
    read.fail(
        "mpirun sets no PMIX_NAMESPACE to choose a port by; pass -x MASTER_PORT=<a free port>");
  out.master_port = read.number_or("MASTER_PORT", 1, kMostPorts, derived_port(job.value_or("")));
  out.attempt = job.value_or("run");
  BRAID_TRY(read.status());
  return std::optional<Membership>(out);
}

}  // namespace

std::string rank_list(const std::vector<int64_t>& ranks) {
  constexpr size_t kNamed = 8, kRuns = 16;
  std::vector<NumberRun> runs;
  if (ranks.size() > kNamed) runs = number_runs_of(ranks);
  for (const int64_t rank : ranks)
    if (ranks.size() <= kNamed) runs.push_back({rank, rank});
  std::vector<std::string> names;
  int64_t left = std::ssize(ranks);
  for (size_t i = 0; i < runs.size() && i < kRuns; left -= runs[i++].count()) {
    const auto& [first, last, stride] = runs[i];
    names.push_back(cat(first));
    if (last == first + 1) names.push_back(cat(last));
    if (last > first + 1)
      names.back() += cat(" to ", last, stride > 1 ? cat(" by ", stride) : std::string());
  }
  return cat(join(names, ", "), left > 0 ? cat(" and ", left, " more") : std::string());
}

std::string store_place(const Membership& membership) {
  return cat(membership.master_host, ":", membership.master_port);
}

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
  };
}

Result<std::optional<Membership>> read_membership(const Environment& environment) {
  if (environment("RANK") || environment("WORLD_SIZE")) return read_standard(environment);
  // A batch script has SLURM_PROCID too; only srun sets the number of tasks of its step.
  if (environment("SLURM_STEP_NUM_TASKS") && environment("SLURM_PROCID"))
    return read_slurm(environment);
  if (environment("OMPI_COMM_WORLD_SIZE")) return read_open_mpi(environment);
  return std::optional<Membership>();
}

Result<std::string> first_slurm_host(std::string_view hosts) {
  const size_t open = hosts.find('['), comma = hosts.find(',');
  const auto is_host = [](std::string_view name) {
    return !name.empty() && name.find_first_of("[], \t\n") == std::string_view::npos;
  };
  if (open == std::string_view::npos || comma < open) {
    const std::string_view name = hosts.substr(0, comma);
    if (!is_host(name)) return invalid_input(cat("no host in '", hosts, "'"));
    return std::string(name);
  }
  const size_t close = hosts.find(']', open);
  if (close == std::string_view::npos) return invalid_input(cat("no ']' in '", hosts, "'"));
  const std::string_view inside = hosts.substr(open + 1, close - open - 1);
  const std::string_view number = inside.substr(0, inside.find_first_of(",-"));
  const bool digits =
      !number.empty() && number.find_first_not_of("0123456789") == std::string_view::npos;
  // Several dimensions ("rack[1-2]node[1-4]") continue behind the bracket.
  std::string_view rest = hosts.substr(close + 1);
  rest = rest.substr(0, rest.find(',') < rest.find('[') ? rest.find(',') : rest.size());
  std::string tail;
  if (!rest.empty()) {
    BRAID_ASSIGN(tail, first_slurm_host(rest));
  }
  const std::string name = cat(hosts.substr(0, open), number, tail);
  if (!digits || !is_host(name)) return invalid_input(cat("no host in '", hosts, "'"));
  return name;
}

int64_t threads_per_rank(int64_t cores, int64_t local_size) {
  return std::max<int64_t>(1, cores / std::max<int64_t>(1, local_size));
}

}  // namespace braid::inline comm
