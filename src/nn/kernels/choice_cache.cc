#include "nn/kernels/choice_cache.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>

#include <cstdlib>
#include <functional>

#include "base/log.h"
#include "base/text.h"
#include "host/file.h"
#include "host/machine.h"

namespace braid::inline nn {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// What the choices depend on, as the file's first line: also which libraries there are to choose
// from.
std::string machine_line() {
  return cat("# ", processor().model, ", ", at::get_num_threads(),
             " threads, own packed default, rows compared, measured in turn, ",
             split(at::show_config(), '\n').front(), ", ", at::get_mkldnn_version(), "\n");
}

std::string cache_file(const std::string& machine) {
  const std::string folder = kernel_cache_folder();
  if (folder.empty()) return "";
  return join_path(folder, cat("kernels-", std::hash<std::string>()(machine), ".txt"));
}

}  // namespace

std::string kernel_cache_folder() {
  if (const std::string own = variable("BRAID_CACHE_DIR"); !own.empty()) return own;
  if (const std::string shared = variable("XDG_CACHE_HOME"); !shared.empty())
    return join_path(shared, "braid");
  const std::string home = variable("HOME");
  return home.empty() ? "" : join_path(home, ".cache/braid");
}

std::string cached_matrix_choices() {
  const std::string machine = machine_line(), path = cache_file(machine);
  if (path.empty() || !path_exists(path)) return "";
  const auto text = read_file(path);
  if (!text.ok() || text->rfind(machine, 0) != 0) return "";
  return text->substr(machine.size());
}

void cache_matrix_choices(const std::string& choices) {
  const std::string machine = machine_line(), path = cache_file(machine);
  if (path.empty()) return;
  Status written = make_folder(kernel_cache_folder());
  if (written.ok()) written = write_file_atomic(path, machine + choices);
  if (!written.ok())
    log_warning(cat("measured matrix libraries are not kept: ", written.message()));
}

}  // namespace braid::inline nn
