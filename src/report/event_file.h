// TensorBoard event files: TFRecord framing with masked CRC-32C around Event messages (TensorFlow's
// record_writer.h and event.proto). Only what scalars need is encoded, by hand: three message types
// of a few fields do not justify a protobuf compiler in the build. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/status.h"

namespace braid::inline report {

// CRC-32C (Castagnoli, reflected polynomial 0x82f63b78).
uint32_t crc32c(std::string_view bytes);

// A record as it stands in the file: length, masked CRC of it, bytes, masked CRC of them.
std::string tfrecord(std::string_view bytes);

// Event messages in protobuf's wire format; wall_time in seconds since 1970.
std::string version_event(double wall_time);
// Tells TensorBoard to forget what an earlier file of the folder has from this step on.
std::string restart_event(double wall_time, int64_t step);
std::string scalars_event(double wall_time, int64_t step,
                          const std::map<std::string, double>& scalars);

class EventFile {
 public:
  // Starts a new file "events.out.tfevents.TIME.PID" in the folder; first_step > 0 continues a run.
  static Result<EventFile> create(const std::string& folder, int64_t first_step);

  // Appends one event with all finite values and flushes it.
  Status write(int64_t step, const std::map<std::string, double>& scalars);

  const std::string& path() const { return path_; }

 private:
  explicit EventFile(std::string path) : path_(std::move(path)) {}
  Status append(const std::string& event);

  std::string path_;
};

}  // namespace braid::inline report
