#include "braid/model/load.h"

#include "device/device.h"

namespace braid {

Result<LoadOptions> load_options(const std::string& dtype, const std::string& device) {
  LoadOptions load;
  load.model.dtype = dtype == "bf16" ? at::kBFloat16 : at::kFloat;
  BRAID_ASSIGN(load.model.device, parse_device(device, "--device"));
  return load;
}

}  // namespace braid
