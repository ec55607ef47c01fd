// Written by `braid calibrate --write-source`: do not edit by hand.
#include "base/json.h"
#include "cost/efficiency.h"

namespace braid {

const Calibration& committed_calibration() {
  static const Calibration calibration = [] {
    const auto json = parse_json(R"json({})json", "committed calibration");
    BRAID_CHECK(json.ok(), json.status().message());
    const auto parsed = calibration_from_json(*json);
    BRAID_CHECK(parsed.ok(), parsed.status().message());
    return *parsed;
  }();
  return calibration;
}

}  // namespace braid
