// Measurements and lists of lengths.
#include "calibrate/csv.h"
#include "calibrate/measurement.h"
#include "plan/make_problem.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)braid::parse_csv(text, "fuzz.csv");
  (void)braid::parse_measurements(text, "fuzz.csv");
  (void)braid::parse_lengths(text, "fuzz.txt");
  return 0;
}
