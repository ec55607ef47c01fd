// The elements of a JSON array as texts of their own. Pure function.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace braid::inline data {

// Calls `visit` with every element of an array, on one line, until a call fails. Only borders are
// looked for; whether an element is JSON is its reader's to find out. Errors name what is wrong
// with the array and the byte.
Status for_each_array_element(std::string_view text,
                              const std::function<Status(std::string_view element)>& visit);

}  // namespace braid::inline data
