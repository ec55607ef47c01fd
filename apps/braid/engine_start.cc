#include "braid/engine_start.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/text.h"
#include "host/file.h"
#include "host/machine.h"

namespace braid {

Status start_engine(char** argv) {
  const std::string folder = program_folder();
  for (const char* place : {"", "../lib", "../libexec"}) {
    const std::string path = join_path(join_path(folder, place), kEngineName);
    if (!path_exists(path)) continue;
    ::execv(path.c_str(), argv);
    return io_error(cat(path, ": does not start: ", std::strerror(errno)));
  }
  return not_found(cat(kEngineName, " is neither in ", folder,
                       " nor in ../lib or ../libexec of it; this command computes with it: copy it "
                       "there from the build folder, beside braid"));
}

// Threads of a parallel region wait for each other by spinning, by default for milliseconds: alone
// on the machine that is fastest, but beside one other busy process they spin while the thread they
// wait for has no core. A short spin keeps both cases fast (docs/benchmarks_appendix.md); a setting
// of the user's stays. On processors with tile matrix units (AMX) oneDNN picks its kernel by the
// number of rows, and a row's bits would depend on its batch; the vector kernels do not. Weights
// and caches of keys are read from end to end all the time, and with small pages much of that is
// looking up where they lie: the heap asks the system for huge ones.
void set_library_limits() {
  setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1", 0);
  setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16", 0);
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) setenv("GOMP_SPINCOUNT", "4000", 0);
}

}  // namespace braid
