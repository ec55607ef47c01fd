// braid export: turns a checkpoint into Hugging Face folders.
#include <memory>

#include "base/log.h"
#include "commands.h"
#include "runtime/export_checkpoint.h"

namespace braid {
namespace {

struct ExportArguments {
  std::string checkpoint, out;
};

Action define_export(CLI::App& app) {
  auto arguments = std::make_shared<ExportArguments>();
  app.allow_extras();
  app.add_option("checkpoint", arguments->checkpoint,
                 "a checkpoint's folder: RUN/checkpoints/step-N")
      ->required();
  app.add_option("out", arguments->out, "gets a Hugging Face folder for each trained role")
      ->required();
  app.footer(
      "Further arguments, as key=value, replace options of the checkpoint: model.path of a "
      "base model that was moved, lora.export_as, tokenizer.path.");
  return [arguments, &app] {
    BRAID_TRY(export_checkpoint(arguments->checkpoint, arguments->out, app.remaining()));
    log_info("the models are in " + arguments->out);
    return ok_status();
  };
}

}  // namespace

extern const Command kExportCommand{"export", "turn a checkpoint into Hugging Face folders",
                                    define_export};

}  // namespace braid
