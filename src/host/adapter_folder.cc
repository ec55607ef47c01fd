#include "host/adapter_folder.h"

#include "host/file.h"

namespace braid::inline host {

bool is_adapter_folder(const std::string& folder) {
  return path_exists(join_path(folder, "adapter_config.json")) &&
         !path_exists(join_path(folder, "config.json"));
}

}  // namespace braid::inline host
