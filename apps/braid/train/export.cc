// braid export: turns a checkpoint into Hugging Face folders.
#include "base/log.h"
#include "braid/engine_options.h"
#include "run/export_checkpoint.h"

namespace braid {
namespace {

Status export_folders(const ExportArguments& arguments, const std::vector<std::string>& inputs) {
  BRAID_TRY(export_checkpoint(arguments.checkpoint, arguments.out, inputs));
  log_info("the models are in " + arguments.out);
  return ok_status();
}

}  // namespace

extern const Command kExportCommand = kExport.with(export_folders);

}  // namespace braid
