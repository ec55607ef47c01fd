#include "braid/plan/calibration_input.h"

#include "base/json.h"
#include "host/file.h"

namespace braid {

Result<Calibration> load_calibration(const std::string& path) {
  if (path.empty()) return committed_calibration();
  BRAID_ASSIGN(const std::string text, read_file(path));
  BRAID_ASSIGN(const Json json, parse_json(text, path));
  return calibration_from_json(json).at(path);
}

}  // namespace braid
