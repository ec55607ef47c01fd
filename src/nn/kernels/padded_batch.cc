#include "nn/kernels/padded_batch.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "base/ceil_div.h"
#include "device/device_copy.h"

namespace braid::inline nn {
namespace {

// What a key costs beside the scores of the queries that see it, in scores: it is fetched.
constexpr int64_t kKeyCost = 16;
// Padding that costs less than the launches of one more group, and what a group may hold at most,
// since scores may be written out: in scores of one head.
constexpr int64_t kSparePadding = int64_t{1} << 20, kMostScores = int64_t{1} << 24;
constexpr int64_t kKeyMultiple = 16;  // rows of a bias that operators take as they are

struct Member {
  int64_t sequence, queries, length;
  bool whole;

  std::tuple<bool, int64_t, int64_t> order() const { return {whole, queries, length}; }
};

struct Rectangle {
  std::vector<Member> members;
  int64_t queries = 0, keys = 0, cost = 0;  // cost without padding

  bool takes(const Member& next) const {
    if (members.empty()) return true;
    if (members.front().whole != next.whole) return false;
    const int64_t count = std::ssize(members) + 1, rows = std::max(queries, next.queries),
                  columns = std::max(keys, next.length);
    const int64_t padded = count * (rows + kKeyCost) * columns;
    return padded <= 2 * (cost + cost_of(next)) + kSparePadding &&
           count * rows * columns <= kMostScores;
  }
  void add(const Member& next) {
    members.push_back(next);
    queries = std::max(queries, next.queries);
    keys = std::max(keys, next.length);
    cost += cost_of(next);
  }
  static int64_t cost_of(const Member& member) {
    return (member.queries + kKeyCost) * member.length;
  }
};

std::vector<Rectangle> rectangles(const AttentionBatch& batch) {
  std::vector<Member> members;
  for (int64_t s = 0; s + 1 < std::ssize(batch.query_begin); ++s) {
    const int64_t queries = batch.query_begin[s + 1] - batch.query_begin[s];
    const bool sees_all = batch.window == 0 || queries <= batch.window;
    if (queries > 0)
      members.push_back({s, queries, batch.length(s), batch.cached[s] == 0 && sees_all});
  }
  std::stable_sort(members.begin(), members.end(),
                   [](const Member& a, const Member& b) { return a.order() < b.order(); });
  std::vector<Rectangle> out;
  for (const Member& member : members) {
    if (out.empty() || !out.back().takes(member)) out.emplace_back();
    out.back().add(member);
  }
  return out;
}

// Lists of numbers that go to the device in one copy.
class Upload {
 public:
  size_t add(const std::vector<int64_t>& list) {
    begins_.push_back(std::ssize(numbers_));
    numbers_.insert(numbers_.end(), list.begin(), list.end());
    return begins_.size() - 1;
  }
  void send(at::Device device) {
    begins_.push_back(std::ssize(numbers_));
    there_ = to_device(at::from_blob(numbers_.data(), {std::ssize(numbers_)}, at::kLong), device);
    if (device.is_cpu()) there_ = there_.clone();
  }
  at::Tensor list(size_t which) const {
    return there_.narrow(0, begins_[which], begins_[which + 1] - begins_[which]);
  }

 private:
  std::vector<int64_t> numbers_, begins_;
  at::Tensor there_;
};

// The row of the batch that holds the key at a position of a sequence.
int64_t row_of_key(const AttentionBatch& batch, int64_t s, int64_t position) {
  if (position >= batch.cached[s]) return batch.query_begin[s] + position - batch.cached[s];
  return batch.query_begin[batch.host(s)] + position;
}

std::vector<int64_t> query_rows(const Rectangle& of, const AttentionBatch& batch) {
  std::vector<int64_t> out;
  for (const Member& member : of.members)
    for (int64_t i = 0; i < of.queries; ++i)
      out.push_back(i < member.queries ? batch.query_begin[member.sequence] + i
                                       : batch.query_begin.back());
  return out;
}

std::vector<int64_t> key_rows(const Rectangle& of, int64_t keys, const AttentionBatch& batch) {
  std::vector<int64_t> out;
  for (const Member& member : of.members)
    for (int64_t i = 0; i < keys; ++i)
      out.push_back(i < member.length ? row_of_key(batch, member.sequence, i)
                                      : batch.query_begin.back());
  return out;
}

// Behind a sequence's last page its first stands once more.
std::vector<int64_t> page_numbers(const Rectangle& of, int64_t pages, const AttentionBatch& batch) {
  std::vector<int64_t> out;
  for (const Member& member : of.members) {
    const std::vector<int32_t>& table = batch.page_tables[member.sequence];
    for (int64_t i = 0; i < pages; ++i)
      out.push_back(table[i * kPageTokens < member.length ? i : 0]);
  }
  return out;
}

// [B, 1, Q, L]. A query that is padding sees what the last of its sequence sees.
at::Tensor bias_of(const PaddedGroup& group, const at::Tensor& cached_B, const at::Tensor& length_B,
                   const PaddedBatch& batch) {
  const auto positions = [&](int64_t count) {
    return at::arange(count, at::TensorOptions(at::kLong).device(batch.device));
  };
  const at::Tensor query =
      at::minimum(cached_B.unsqueeze(1) + positions(group.queries), (length_B - 1).unsqueeze(1))
          .unsqueeze(2);
  const at::Tensor key = positions(group.keys);
  at::Tensor hidden = key > query;
  if (batch.window > 0) hidden = hidden.logical_or(key <= query - batch.window);
  const at::Tensor visible = at::zeros({group.sequences, 1, group.queries, group.keys},
                                       at::TensorOptions(batch.dtype).device(batch.device));
  return visible.masked_fill(hidden.unsqueeze(1), -std::numeric_limits<float>::infinity());
}

// Where the lists of one group are in the upload.
struct GroupLists {
  size_t keys, cached, length;
};

GroupLists list_group(const Rectangle& of, const PaddedGroup& group, const AttentionBatch& batch,
                      Upload& upload) {
  std::vector<int64_t> cached, length;
  for (const Member& member : of.members) {
    cached.push_back(batch.cached[member.sequence]);
    length.push_back(member.length);
  }
  const size_t keys =
      upload.add(batch.page_tables.empty() ? key_rows(of, group.keys, batch)
                                           : page_numbers(of, group.keys / kPageTokens, batch));
  return {keys, upload.add(cached), upload.add(length)};
}

std::vector<int64_t> slots_of(const AttentionBatch& batch) {
  std::vector<int64_t> out;
  for (int64_t s = 0; s < std::ssize(batch.page_tables); ++s)
    for (int64_t at = batch.cached[s]; at < batch.length(s); ++at)
      out.push_back(batch.page_tables[s][at / kPageTokens] * kPageTokens + at % kPageTokens);
  return out;
}

PaddedGroup empty_group(const Rectangle& of, const AttentionBatch& batch) {
  PaddedGroup out;
  out.sequences = std::ssize(of.members);
  out.queries = of.queries;
  out.whole = of.members.front().whole;
  const int64_t unit = batch.page_tables.empty() ? kKeyMultiple : kPageTokens;
  out.keys = out.whole ? of.keys : round_up(of.keys, unit);
  return out;
}

std::vector<int64_t> inverse(const std::vector<int64_t>& rows, int64_t tokens) {
  std::vector<int64_t> places(tokens);
  for (int64_t i = 0; i < std::ssize(rows); ++i)
    if (rows[i] < tokens) places[rows[i]] = i;
  return places;
}

PaddedBatch make_padded(const AttentionBatch& batch, at::Device device, at::ScalarType dtype) {
  PaddedBatch out{device, dtype, batch.window, {}, {}, {}, {}};
  Upload upload;
  std::vector<int64_t> rows;
  std::vector<GroupLists> lists;
  for (const Rectangle& rectangle : rectangles(batch)) {
    PaddedGroup group = empty_group(rectangle, batch);
    const std::vector<int64_t> own = query_rows(rectangle, batch);
    rows.insert(rows.end(), own.begin(), own.end());
    lists.push_back(group.whole ? GroupLists{} : list_group(rectangle, group, batch, upload));
    out.groups.push_back(std::move(group));
  }
  const int64_t tokens = batch.query_begin.back();
  const size_t rows_list = upload.add(rows), places_list = upload.add(inverse(rows, tokens)),
               slots_list = upload.add(slots_of(batch));
  upload.send(device);
  const bool in_order = std::ssize(rows) == tokens && std::is_sorted(rows.begin(), rows.end());
  if (!in_order) out.rows = upload.list(rows_list), out.places = upload.list(places_list);
  if (!batch.page_tables.empty()) out.slot_T = upload.list(slots_list);
  for (size_t i = 0; i < out.groups.size(); ++i) {
    PaddedGroup& group = out.groups[i];
    if (group.whole) continue;
    (batch.page_tables.empty() ? group.key_rows : group.pages) = upload.list(lists[i].keys);
    group.bias = bias_of(group, upload.list(lists[i].cached), upload.list(lists[i].length), out);
  }
  return out;
}

// Rows in an order that has each of them once, beside padding: the gradient is a gather too.
struct MoveRows : torch::autograd::Function<MoveRows> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& to, const at::Tensor& back) {
    context->saved_data["back"] = back;
    return take_rows(x, to);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    return {take_rows(grads[0], context->saved_data["back"].toTensor()), {}, {}};
  }
};

at::Tensor move_rows(const at::Tensor& x, const at::Tensor& to, const at::Tensor& back) {
  if (!to.defined()) return x;
  return at::GradMode::is_enabled() ? MoveRows::apply(x, to, back) : take_rows(x, to);
}

}  // namespace

const PaddedBatch& padded_batch(const AttentionBatch& batch, at::Device device,
                                at::ScalarType dtype) {
  const PaddedBatch* found = batch.padded.get();
  if (found == nullptr || found->device != device || found->dtype != dtype ||
      found->window != batch.window)
    batch.padded = std::make_shared<const PaddedBatch>(make_padded(batch, device, dtype));
  return *batch.padded;
}

at::Tensor take_rows(const at::Tensor& x_TND, const at::Tensor& index) {
  return at::constant_pad_nd(x_TND, {0, 0, 0, 0, 0, 1}).index_select(0, index);
}

at::Tensor pad_rows(const at::Tensor& x_TND, const PaddedBatch& padded) {
  return move_rows(x_TND, padded.rows, padded.places);
}

at::Tensor unpad_rows(const at::Tensor& x_RND, const PaddedBatch& padded) {
  return move_rows(x_RND, padded.places, padded.rows);
}

}  // namespace braid::inline nn
