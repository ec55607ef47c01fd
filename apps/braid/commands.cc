#include "commands.h"

namespace braid {

// Plan side: plan_*.cc. Run side (libtorch): run_*.cc. Each file defines one `Command` value,
// declared here.
extern const Command kPlanCommand;
extern const Command kSimulateCommand;
extern const Command kSearchTableCommand;
extern const Command kFuseCommand;
extern const Command kValidateCommand;
extern const Command kCalibrateCommand;
#ifdef BRAID_WITH_TORCH
extern const Command kTrainCommand;
extern const Command kSftCommand;
extern const Command kRmCommand;
extern const Command kExportCommand;
extern const Command kEvalCommand;
extern const Command kDataCommand;
extern const Command kDoctorCommand;
extern const Command kConfigCommand;
extern const Command kTokenizeCommand;
extern const Command kGenerateCommand;
extern const Command kScoreCommand;
extern const Command kRewardTestCommand;
extern const Command kProfileCommand;
#endif

std::vector<Command> all_commands() {
  return {
      kPlanCommand,  kSimulateCommand,   kSearchTableCommand, kValidateCommand, kCalibrateCommand,
      kFuseCommand,
#ifdef BRAID_WITH_TORCH
      kTrainCommand, kSftCommand,        kRmCommand,          kExportCommand,   kConfigCommand,
      kEvalCommand,  kDataCommand,       kDoctorCommand,      kTokenizeCommand, kGenerateCommand,
      kScoreCommand, kRewardTestCommand, kProfileCommand,
#endif
  };
}

}  // namespace braid
