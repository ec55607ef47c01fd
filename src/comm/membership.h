// Which rank of which job this process is, as the program that started it says by environment
// variables: Braid's own launcher, torchrun, srun or mpirun. Pure values; nothing is connected
// here.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace braid::inline comm {

inline constexpr const char* kOwnLauncher = "braid";

struct Membership {
  int64_t global_rank = 0;
  int64_t world_size = 1;
  int64_t local_rank = 0;  // among the ranks of this machine
  int64_t local_size = 1;
  std::string master_host = "127.0.0.1";  // of the store that all ranks meet at
  int64_t master_port = 0;
  bool store_exists = false;  // the starter serves the store; else rank 0 does
  std::string started_by;     // kOwnLauncher, "torchrun", "srun", "mpirun", "the environment"
  std::string attempt;        // differs between a job and its restarts in the same store

  bool one_machine() const { return local_size == world_size; }
  bool serves_store() const { return global_rank == 0 && !store_exists; }
  friend bool operator==(const Membership&, const Membership&) = default;
};

// "0, 2, 5" for messages; of many, their runs: "0 to 6, 8, 9".
std::string rank_list(const std::vector<int64_t>& ranks);

// "HOST:PORT" of the store.
std::string store_place(const Membership& membership);

// The value of an environment variable, or nothing.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

// The membership that the environment states; nothing where this process was started alone. A
// variable that is missing beside the others, no number or out of range is an error that names it.
Result<std::optional<Membership>> read_membership(const Environment& environment);

// The first host of a Slurm host list: "gpu003" of "gpu[003-006,011],login1".
Result<std::string> first_slurm_host(std::string_view hosts);

// Threads that each of `local_size` ranks of a machine with `cores` cores may use; at least 1.
int64_t threads_per_rank(int64_t cores, int64_t local_size);

}  // namespace braid::inline comm
