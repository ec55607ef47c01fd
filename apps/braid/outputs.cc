#include "braid/outputs.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/text.h"
#include "host/file.h"

namespace braid {
namespace {

Status check_output(const std::string& path) {
  if (is_folder(path)) return invalid_input(cat(path, " is a folder; name a file"));
  const std::string folder = parent_folder(path);
  if (!path_exists(folder))
    return not_found(cat(path, ": there is no folder ", folder, "; make it, or name another file"));
  if (!is_folder(folder)) return invalid_input(cat(path, ": ", folder, " is no folder"));
  const bool stream = path_exists(path) && !is_regular_file(path);  // written to as it is
  if (::access(stream ? path.c_str() : folder.c_str(), W_OK) == 0) return ok_status();
  return io_error(cat(path, ": cannot be written: ", std::strerror(errno)));
}

}  // namespace

Status check_outputs(std::initializer_list<std::pair<const char*, std::string>> files) {
  for (const auto& [option, path] : files)
    if (!path.empty()) BRAID_TRY(check_output(path).at(option));
  return ok_status();
}

}  // namespace braid
