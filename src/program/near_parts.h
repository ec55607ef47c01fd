// Load balancing of what lies somewhere already: units stay in the part where they are, and what a
// part has over its share goes to few others, near ones first. So of how many others a part has
// units does not grow with their number. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

namespace braid::inline program {

// A part is good enough where it has at most 1 / kGoodShare more than its share.
inline constexpr int64_t kGoodShare = 128;

// Units of each of `count` parts, ascending: `homes` is the part where a unit lies, ascending. As
// even as such moves make them, which the caller judges. `looked_at`, where it is given: how often
// it looked at a part to find one that gives or takes, which grows no faster than their number.
std::vector<std::vector<int32_t>> near_parts(const std::vector<int64_t>& tokens,
                                             const std::vector<int32_t>& homes, int64_t count,
                                             int64_t* looked_at = nullptr);

}  // namespace braid::inline program
