// What tells files of equal names on several machines apart without reading big ones in whole.
// Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace braid::inline host {

// Files up to here are hashed in whole.
inline constexpr int64_t kWholeFileBytes = int64_t{64} << 20;

// "1234 bytes with SHA-256 0123456789abcdef" (the first digits). Of a larger file the hash is of
// its size and of 1024 pieces of 32 KiB that are spread evenly over it, the beginning and the end
// among them: weights of another training differ in every piece, and the time does not grow with
// the file. Of a large .safetensors file also the header and every tensor up to 1 MiB are hashed:
// a training of norms or biases alone shows too. Errors name the path.
Result<std::string> file_fingerprint(const std::string& path);

// The same of a .safetensors file of which each rank reads slices and compares the hashes of these:
// of one that is larger than 1 MiB the hash is of its size, its header, and of each tensor four
// pieces of 4 KiB that are spread evenly over it, its beginning and its end among them; tensors up
// to 64 KiB are hashed in whole. Weights of another training differ in every piece, and what is
// read does not grow with the tensors.
Result<std::string> weights_file_fingerprint(const std::string& path);
// What that hashes of the bytes of one tensor, in parts that alias them.
std::vector<std::string_view> parts_of_tensor(std::string_view bytes);

}  // namespace braid::inline host
