// SHA-256 of the contents of tensors, on any device. libtorch's threads are used inside; results do
// not depend on how many there are.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace braid::inline nn {

// Of the blocks of 4 MiB of its contents, one after another, each as 64 hexadecimal digits.
std::string block_digests(const at::Tensor& tensor);

// The first kDigestDigits digits of the hash of these.
inline constexpr size_t kDigestDigits = 16;
std::string tensor_digest(const at::Tensor& tensor);

}  // namespace braid::inline nn
