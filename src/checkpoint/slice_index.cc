#include "checkpoint/slice_index.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/text.h"

namespace braid::inline checkpoint {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::vector<std::string> sizes;
  for (const int64_t size : shape) sizes.push_back(std::to_string(size));
  return cat("[", join(sizes, ","), "]");
}

std::string ranges_text(const PlacedSlice& slice, std::string_view separator) {
  std::vector<std::string> ranges;
  for (size_t dim = 0; dim < slice.offset.size(); ++dim)
    ranges.push_back(cat(slice.offset[dim], ":", slice.offset[dim] + slice.extent[dim]));
  return cat("[", join(ranges, separator), "]");
}

// What is between the brackets, in parts; "[]" has none.
std::optional<std::vector<std::string>> in_brackets(std::string_view text) {
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return std::nullopt;
  text = text.substr(1, text.size() - 2);
  return text.empty() ? std::vector<std::string>() : split(text, ',');
}

bool parse_shape(std::string_view text, std::vector<int64_t>* shape) {
  const auto sizes = in_brackets(text);
  if (!sizes) return false;
  for (const std::string& size : *sizes)
    if (!parse_int(size, &shape->emplace_back())) return false;
  return true;
}

// "0", all of the tensor, or "0[0:2,0:4]", which lies in it.
bool parse_slice(const std::string& text, const std::vector<int64_t>& shape, PlacedSlice* out) {
  const size_t open = std::min(text.find('['), text.size());
  if (!parse_int(text.substr(0, open), &out->rank)) return false;
  out->offset.assign(shape.size(), 0);
  out->extent = shape;
  if (open == text.size()) return true;
  const auto ranges = in_brackets(std::string_view(text).substr(open));
  if (!ranges || ranges->size() != shape.size()) return false;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    const std::vector<std::string> ends = split((*ranges)[dim], ':');
    int64_t begin = 0, end = 0;
    if (ends.size() != 2 || !parse_int(ends[0], &begin) || !parse_int(ends[1], &end)) return false;
    if (begin < 0 || end < begin || end > shape[dim]) return false;
    out->offset[dim] = begin;
    out->extent[dim] = end - begin;
  }
  return true;
}

}  // namespace

PlacedSlice place_of(int64_t rank, const SavedSlice& slice) {
  return {rank, slice.offset, slice.values.sizes().vec()};
}

bool overlap(const PlacedSlice& a, const PlacedSlice& b) {
  for (size_t dim = 0; dim < a.offset.size(); ++dim)
    if (std::max(a.offset[dim], b.offset[dim]) >=
        std::min(a.offset[dim] + a.extent[dim], b.offset[dim] + b.extent[dim]))
      return false;
  return true;
}

std::string place_text(const std::string& tensor, const PlacedSlice& slice) {
  return tensor + ranges_text(slice, ", ");
}

SliceIndex index_of(int64_t rank, const std::vector<SavedSlice>& slices) {
  SliceIndex out;
  for (const SavedSlice& slice : slices) {
    std::string& text = out.try_emplace(slice.tensor, shape_text(slice.shape)).first->second;
    const PlacedSlice place = place_of(rank, slice);
    text += cat(" ", rank, place.extent == slice.shape ? "" : ranges_text(place, ","));
  }
  return out;
}

Status add_index(const SliceIndex& more, SliceIndex* index) {
  for (const auto& [tensor, text] : more) {
    const auto [at, added] = index->try_emplace(tensor, text);
    if (added) continue;
    const std::string shape = text.substr(0, text.find(' '));
    if (shape != at->second.substr(0, at->second.find(' ')))
      return invalid_input(cat("tensor ", tensor, " has shape ", shape, " on one rank, and ",
                               at->second.substr(0, at->second.find(' ')), " on another"));
    at->second += text.substr(shape.size());
  }
  return ok_status();
}

Result<TensorPlaces> places_of(const std::string& tensor, const std::string& text) {
  TensorPlaces out;
  const std::vector<std::string> words = split(text, ' ');
  bool good = parse_shape(words.front(), &out.shape);
  for (size_t i = 1; good && i < words.size(); ++i)
    good = parse_slice(words[i], out.shape, &out.slices.emplace_back());
  if (good) return out;
  return Status(Code::kDataLoss, cat("'", text, "' says no slices of tensor ", tensor));
}

}  // namespace braid::inline checkpoint
