// What benchmarks of several ranks share: the ranks are this program again, with the same
// arguments.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "comm/launcher.h"
#include "comm/world.h"

namespace braid {

// Seconds that `work`, a function that returns a Status, takes until all ranks are done with it.
template <typename Work>
Result<double> timed(Communicator& all, const Work& work) {
  BRAID_TRY(all.barrier("before"));
  const auto start = std::chrono::steady_clock::now();
  BRAID_TRY(work());
  BRAID_TRY(all.barrier("after"));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

inline int64_t argument(int argc, char** argv, int index, int64_t otherwise) {
  return argc > index ? std::atoll(argv[index]) : otherwise;
}

// Runs `rank`, Status(World&), on as many ranks of one thread each; returns the exit code.
template <typename Rank>
int run_ranks(int64_t ranks, int argc, char** argv, const Rank& rank) {
  const auto reported = [](const Status& status) {
    if (!status.ok()) std::fprintf(stderr, "braid: error: %s\n", status.message().c_str());
    return exit_code(status.code());
  };
  if (std::getenv("RANK") != nullptr) {
    const auto as_rank = [&]() -> Status {
      BRAID_ASSIGN(const auto membership, read_membership(process_environment()));
      BRAID_ASSIGN(const auto world, World::join(*membership, {}));
      BRAID_TRY(rank(*world));
      return world->leave();
    };
    return reported(as_rank());
  }
  LaunchOptions options;
  options.ranks = ranks;
  options.argv = {std::filesystem::read_symlink("/proc/self/exe").string()};
  options.argv.insert(options.argv.end(), argv + 1, argv + argc);
  options.environment = {{"OMP_NUM_THREADS", "1"}};
  const auto code = launch_ranks(options);
  return code.ok() ? *code : reported(code.status());
}

}  // namespace braid
