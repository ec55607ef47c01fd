// Unpacks gzip data. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace braid {

// Whether the data starts as gzip does; plain text never does.
bool is_gzip(std::string_view data);

// The content of a whole gzip file in memory (RFC 1952; several members are joined). kInvalidInput
// when it is damaged, cut short, followed by other data, or unpacks to more than 4 GiB.
Result<std::string> gunzip(std::string_view data);

}  // namespace braid
