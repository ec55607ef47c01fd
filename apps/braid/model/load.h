// How commands that only compute forwards load a model. Stateless.
#pragma once

#include <string>

#include "nn/model.h"

namespace braid {

// Of --dtype (f32 or bf16) and --device. Errors: no such device here.
Result<LoadOptions> load_options(const std::string& dtype, const std::string& device);

}  // namespace braid
