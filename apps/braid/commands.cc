#include "braid/commands.h"

#ifdef BRAID_WITH_ENGINE
#include "braid/engine_options.h"
#include "braid/engine_start.h"
#endif

namespace braid {

// Plan side: plan_*.cc. Configurations, data, tokenizers and rewards: run_*.cc. Each file defines
// one `Command` value, declared here.
extern const Command kPlanCommand;
extern const Command kSimulateCommand;
extern const Command kSearchTableCommand;
extern const Command kFuseCommand;
extern const Command kValidateCommand;
extern const Command kCalibrateCommand;

#ifdef BRAID_WITH_ENGINE
extern const Command kDataCommand;
extern const Command kConfigCommand;
extern const Command kTokenizeCommand;
extern const Command kRewardTestCommand;

namespace {

// Arguments are read first: a mistake in them shows before libtorch is loaded.
template <typename Options>
Command in_engine(const EngineCommand<Options>& command, char** argv) {
  return command.with([argv](const Options&, const std::vector<std::string>&) {
    set_library_limits();
    return start_engine(argv);
  });
}

}  // namespace
#endif

std::vector<Command> all_commands([[maybe_unused]] char** argv) {
  return {
      kPlanCommand,
      kSimulateCommand,
      kSearchTableCommand,
      kValidateCommand,
      kCalibrateCommand,
      kFuseCommand,
#ifdef BRAID_WITH_ENGINE
      in_engine(kTrain, argv),
      in_engine(kSft, argv),
      in_engine(kRm, argv),
      in_engine(kExport, argv),
      kConfigCommand,
      in_engine(kEval, argv),
      kDataCommand,
      in_engine(kDoctor, argv),
      kTokenizeCommand,
      in_engine(kGenerate, argv),
      in_engine(kScore, argv),
      kRewardTestCommand,
      in_engine(kProfile, argv),
#endif
  };
}

}  // namespace braid
