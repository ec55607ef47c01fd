// The cost model that a planning command prices with.
#pragma once

#include <string>

#include "base/status.h"
#include "pricing/efficiency.h"

namespace braid {

// The calibration in a file that `braid calibrate --out` wrote; the committed one for an empty
// path.
Result<Calibration> load_calibration(const std::string& path);

}  // namespace braid
