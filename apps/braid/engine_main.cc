// braid-engine: the commands that compute, on libtorch. `braid` becomes it.
#include <unistd.h>

#include <cstdlib>

#include "braid/engine_start.h"
#include "braid/program.h"
#include "device/tensor_memory.h"

namespace braid {

extern const Command kTrainCommand;
extern const Command kSftCommand;
extern const Command kRmCommand;
extern const Command kExportCommand;
extern const Command kEvalCommand;
extern const Command kDoctorCommand;
extern const Command kGenerateCommand;
extern const Command kScoreCommand;
extern const Command kProfileCommand;

}  // namespace braid

int main(int argc, char** argv) {
  // What the libraries read when they are loaded must stand before. Where `braid` did not set it,
  // once more from the beginning.
  const bool stands =
      std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr;
  braid::set_library_limits();
  if (!stands) ::execv("/proc/self/exe", argv);
  braid::count_tensor_memory();
  using namespace braid;  // NOLINT: the list
  return run_program({kTrainCommand, kSftCommand, kRmCommand, kExportCommand, kEvalCommand,
                      kDoctorCommand, kGenerateCommand, kScoreCommand, kProfileCommand},
                     argc, argv);
}
