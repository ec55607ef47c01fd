// Unpacks gzip data. Thread-safe.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace braid::inline host {

// Whether the data starts as gzip does; plain text never does.
bool is_gzip(std::string_view data);

// Calls `take` with the content of a gzip file (RFC 1952; several members are joined) part by part,
// until a call fails. kInvalidInput when it is damaged, cut short or followed by other data.
Status gunzip_to(std::string_view data, const std::function<Status(std::string_view part)>& take);

// The content of a whole gzip file in memory, as gunzip_to() reads it; more than 4 GiB are
// kInvalidInput.
Result<std::string> gunzip(std::string_view data);

}  // namespace braid::inline host
