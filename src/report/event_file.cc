#include "report/event_file.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstring>

#include "base/text.h"
#include "host/file.h"

namespace braid::inline report {
namespace {

std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0x82f63b78u : 0);
    table[i] = value;
  }
  return table;
}

// Stored CRCs are rotated and offset, so that a CRC over data that holds CRCs stays meaningful.
uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

template <typename T>
std::string little_endian(T value) {
  std::string out(sizeof value, '\0');
  std::memcpy(out.data(), &value, sizeof value);
  return out;
}

// Protobuf: a field is a key (number << 3 | wire type) and a value.
enum WireType : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}
std::string key(uint64_t number, WireType type) { return varint(number << 3 | type); }
std::string bytes_field(uint64_t number, std::string_view bytes) {
  return key(number, kBytes) + varint(bytes.size()) + std::string(bytes);
}
std::string int_field(uint64_t number, int64_t value) {
  return key(number, kVarint) + varint(static_cast<uint64_t>(value));
}
std::string double_field(uint64_t number, double value) {
  return key(number, kFixed64) + little_endian(value);
}
std::string float_field(uint64_t number, float value) {
  return key(number, kFixed32) + little_endian(value);
}

// Event: wall_time = 1, step = 2.
std::string event_head(double wall_time, int64_t step) {
  return double_field(1, wall_time) + int_field(2, step);
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static const std::array<uint32_t, 256> table = crc_table();
  uint32_t crc = ~0u;
  for (const char byte : bytes) crc = table[(crc ^ static_cast<uint8_t>(byte)) & 0xff] ^ crc >> 8;
  return ~crc;
}

std::string tfrecord(std::string_view bytes) {
  const std::string length = little_endian(static_cast<uint64_t>(bytes.size()));
  return length + little_endian(masked_crc(length)) + std::string(bytes) +
         little_endian(masked_crc(bytes));
}

// Event: file_version = 3.
std::string version_event(double wall_time) {
  return double_field(1, wall_time) + bytes_field(3, "brain.Event:2");
}

// Event: session_log = 7; SessionLog: status = 1, where 1 is START.
std::string restart_event(double wall_time, int64_t step) {
  return event_head(wall_time, step) + bytes_field(7, int_field(1, 1));
}

// Event: summary = 5; Summary: value = 1; Value: tag = 1, simple_value = 2.
std::string scalars_event(double wall_time, int64_t step,
                          const std::map<std::string, double>& scalars) {
  std::string summary;
  for (const auto& [name, value] : scalars)
    if (std::isfinite(value))
      summary += bytes_field(1, bytes_field(1, name) + float_field(2, static_cast<float>(value)));
  return event_head(wall_time, step) + bytes_field(5, summary);
}

Result<EventFile> EventFile::create(const std::string& folder, int64_t first_step) {
  const double now = seconds_since_1970();
  BRAID_TRY(make_folder(folder));
  EventFile file(
      join_path(folder, cat("events.out.tfevents.", static_cast<int64_t>(now), ".", ::getpid())));
  BRAID_TRY(file.append(version_event(now)));
  if (first_step > 0) BRAID_TRY(file.append(restart_event(now, first_step)));
  return file;
}

Status EventFile::write(int64_t step, const std::map<std::string, double>& scalars) {
  return append(scalars_event(seconds_since_1970(), step, scalars));
}

Status EventFile::append(const std::string& event) { return append_file(path_, tfrecord(event)); }

}  // namespace braid::inline report
