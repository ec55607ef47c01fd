// Fits the few free numbers of the memory model to measured peaks. Pure; thread-safe.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cost/measurement.h"

namespace braid {

std::map<std::string, double> fit_memory(const std::vector<Measurement>& rows);

}  // namespace braid
