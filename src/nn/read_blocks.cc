#include "nn/read_blocks.h"

#include <algorithm>

#include "base/text.h"
#include "nn/tensor_digest.h"

namespace braid::inline nn {
namespace {

constexpr int64_t kCuts = 8;

std::string range_text(const IndexRange& range) { return cat(range.begin, ":", range.end); }

std::string block_name(const StoredSlice& slice, const IndexRange& along) {
  const bool matrix = slice.shape.size() > 1;
  const IndexRange& rows = slice.dim == 0 ? along : slice.rows;
  const IndexRange& columns = slice.dim == 0 ? slice.columns : along;
  return cat(slice.path.substr(slice.path.rfind('/') + 1), ", tensor ", slice.tensor, "[",
             range_text(rows), matrix ? cat(", ", range_text(columns)) : "", "]");
}

}  // namespace

void note_read(const StoredSlice& slice, const at::Tensor& values, ReadBlocks* blocks) {
  const IndexRange& range = slice.dim == 0 ? slice.rows : slice.columns;
  int64_t begin = range.begin;
  for (int64_t cut = 1; cut <= kCuts; ++cut) {
    const int64_t end = std::min(range.end, slice.shape[slice.dim] * cut / kCuts);
    if (end <= begin) continue;
    const at::Tensor part = values.narrow(slice.dim, begin - range.begin, end - begin);
    (*blocks)[block_name(slice, {begin, end})] = tensor_digest(part);
    begin = end;
  }
}

}  // namespace braid::inline nn
