// Units of quantities that several modules count in.
#pragma once

namespace braid::inline base {

inline constexpr double kGib = 1073741824.0;  // bytes

}  // namespace braid::inline base
