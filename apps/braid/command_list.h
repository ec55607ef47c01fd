// The subcommands, in the order in which --help prints them. A command's file defines
// k<Name>Command. PLAN: of braid. READ: of braid, where the run side is built. COMPUTE: of
// braid-engine; its name, help and options are k<Name> in engine_options.h.
#pragma once

#include "braid/command.h"
#include "braid/engine_options.h"

#define BRAID_COMMANDS(PLAN, READ, COMPUTE) \
  PLAN(Plan)                                \
  PLAN(Place)                               \
  PLAN(Simulate)                            \
  PLAN(SearchTable)                         \
  PLAN(Validate)                            \
  PLAN(Calibrate)                           \
  PLAN(Fuse)                                \
  PLAN(Report)                              \
  COMPUTE(Train)                            \
  COMPUTE(Sft)                              \
  COMPUTE(Rm)                               \
  COMPUTE(Export)                           \
  READ(Config)                              \
  COMPUTE(Eval)                             \
  READ(Data)                                \
  COMPUTE(Doctor)                           \
  READ(Tokenize)                            \
  COMPUTE(Generate)                         \
  COMPUTE(Chat)                             \
  COMPUTE(Score)                            \
  READ(RewardTest)                          \
  READ(BuildLoss)                           \
  COMPUTE(Profile)

#define BRAID_NO_COMMAND(name)
#define BRAID_DECLARE_COMMAND(name) extern const Command k##name##Command;
#define BRAID_LIST_COMMAND(name) k##name##Command,

namespace braid {

BRAID_COMMANDS(BRAID_DECLARE_COMMAND, BRAID_DECLARE_COMMAND, BRAID_DECLARE_COMMAND)

}  // namespace braid
