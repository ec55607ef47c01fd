// braid-engine: the commands that compute, on libtorch. `braid` becomes it.
#include <unistd.h>

#include <cstdlib>

#include "braid/command_list.h"
#include "braid/engine_start.h"
#include "braid/program.h"
#include "comm/transfer_audit.h"
#include "device/tensor_memory.h"

int main(int argc, char** argv) {
  // What the libraries read when they are loaded must stand before. Where `braid` did not set it,
  // once more from the beginning.
  const bool stands =
      std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr;
  braid::set_library_limits();
  if (!stands) ::execv("/proc/self/exe", argv);
  braid::count_tensor_memory();
  if (std::getenv("BRAID_CHECK_TRANSFERS") != nullptr) braid::check_transfers();
  using namespace braid;  // NOLINT: the list
  return run_program({BRAID_COMMANDS(BRAID_NO_COMMAND, BRAID_NO_COMMAND, BRAID_LIST_COMMAND)}, argc,
                     argv);
}
