#include "checkpoint/run_folder.h"

#include "host/file.h"

namespace braid::inline checkpoint {

std::string run_folder(const Config& config) { return join_path(config.run.dir, config.run.name); }

std::string checkpoint_folder(const Config& config) {
  return config.checkpoint.dir.empty() ? join_path(run_folder(config), "checkpoints")
                                       : config.checkpoint.dir;
}

}  // namespace braid::inline checkpoint
