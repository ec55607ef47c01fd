#include "nn/tensor_digest.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "base/ceil_div.h"
#include "base/text.h"
#include "device/device_copy.h"
#include "host/sha256.h"

namespace braid::inline nn {
namespace {

constexpr int64_t kBlockBytes = int64_t{4} << 20;

}  // namespace

std::string block_digests(const at::Tensor& tensor) {
  const at::Tensor bytes = to_host(tensor.detach()).contiguous();
  const auto* data = static_cast<const char*>(bytes.const_data_ptr());
  const auto size = static_cast<int64_t>(bytes.nbytes());
  std::vector<std::string> digests(ceil_div(size, kBlockBytes));
  at::parallel_for(0, static_cast<int64_t>(digests.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      digests[i] = sha256_hex({data + i * kBlockBytes,
                               static_cast<size_t>(std::min(kBlockBytes, size - i * kBlockBytes))});
  });
  return join(digests, "");
}

std::string tensor_digest(const at::Tensor& tensor) {
  return sha256_hex(block_digests(tensor)).substr(0, kDigestDigits);
}

}  // namespace braid::inline nn
