// Text of unknown origin, such as a line of a binary file, made fit for a message. Pure functions.
#pragma once

#include <string>
#include <string_view>

namespace braid::inline base {

// The text with control bytes as \xNN, so that a terminal shows all of it and nothing cuts it off;
// line breaks and tabs stay.
std::string printable(std::string_view text);

// The begin of what was read, on one line: control bytes (line breaks too) as \xNN, in binary data
// also those that are no ASCII; after `most` bytes "...".
std::string excerpt(std::string_view text, size_t most = 60);

}  // namespace braid::inline base
