// braid train with device: emulated: one step of the plan on ranks that wait in place of computing.
#pragma once

#include "braid/engine_options.h"
#include "config/load.h"

namespace braid {

// Starts the ranks, or runs the one that this process is. The first prints predicted beside
// emulated times and writes them and a trace to the run's folder.
Status train_emulated(const TrainArguments& arguments, const LoadedConfig& loaded);

}  // namespace braid
