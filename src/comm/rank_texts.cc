#include "comm/rank_texts.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <cstring>

#include "base/text.h"
#include "base/tree_place.h"
#include "comm/channels.h"

namespace braid::inline comm {
namespace {

at::Tensor size_of_text(const std::string& text) {
  return at::tensor({static_cast<int64_t>(text.size())}, at::kLong);
}

at::Tensor bytes_of_text(const std::string& text) {
  const at::Tensor out = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::memcpy(out.mutable_data_ptr(), text.data(), text.size());
  return out;
}

std::string text_in(const at::Tensor& bytes) {
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.numel())};
}

std::string size_name(std::string_view what) { return cat(what, " (size)"); }

}  // namespace

Status send_text(const std::string& text, int64_t to, Communicator& group, std::string_view what) {
  const at::Tensor size = size_of_text(text), bytes = bytes_of_text(text);
  BRAID_TRY(group.send(size, to, kTextChannel, size_name(what)).wait());
  return group.send(bytes, to, kTextChannel, what).wait();
}

Result<std::string> receive_text(int64_t from, Communicator& group, std::string_view what) {
  const at::Tensor size = at::empty({1}, at::kLong);
  BRAID_TRY(group.receive(size, from, kTextChannel, size_name(what)).wait());
  const at::Tensor bytes = at::empty({size.item<int64_t>()}, at::kByte);
  BRAID_TRY(group.receive(bytes, from, kTextChannel, what).wait());
  return text_in(bytes);
}

Status merge_to_first(Communicator* group, const MergedText& texts, std::string_view what) {
  if (group == nullptr) return ok_status();
  const std::vector<int64_t>& members = group->members();
  const TreePlace tree =
      tree_place(static_cast<int>(group->index()), static_cast<int>(group->size()));
  for (const TreePlace::Branch& branch : tree.branches) {
    BRAID_ASSIGN(const std::string text, receive_text(members[branch.place], *group, what));
    BRAID_TRY(texts.hear(text));
  }
  return tree.parent < 0 ? ok_status()
                         : send_text(texts.said(), members[tree.parent], *group, what);
}

}  // namespace braid::inline comm
