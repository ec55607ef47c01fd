// The measured choices of matrix libraries, kept per user for a kind of processor, thread count and
// libtorch: runs of one machine then choose alike, and the same seed gives the same bits. A cache
// that cannot be read or written is as none. Called from one thread at a time.
#pragma once

#include <string>

namespace braid::inline nn {

// The folder of the cache: $BRAID_CACHE_DIR, $XDG_CACHE_HOME/braid or $HOME/.cache/braid; "" where
// none of them is set.
std::string kernel_cache_folder();

// The saved choices for this machine and thread count (choice.h has the form); "" for none.
std::string cached_matrix_choices();

// Saves choices in place of those of before.
void cache_matrix_choices(const std::string& choices);

}  // namespace braid::inline nn
