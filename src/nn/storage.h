// Memory of tensors that comes and goes while the tensors stay what they are. Not thread-safe.
#pragma once

#include <c10/core/Storage.h>

#include "base/status.h"

namespace braid::inline nn {

// Gives a storage other memory of so many bytes, without values; 0 frees it. Every tensor over it
// sees that at once, and none may be read while it is smaller than they are.
inline void resize_storage(const c10::Storage& storage, size_t bytes) {
  BRAID_CHECK(storage.allocator() != nullptr, "a tensor over memory of somebody else");
  storage.set_data_ptr_noswap(storage.allocator()->allocate(bytes));
  storage.set_nbytes(bytes);
}

}  // namespace braid::inline nn
