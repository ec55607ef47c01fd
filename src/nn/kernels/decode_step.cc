#include "nn/kernels/decode_step.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <array>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/status.h"
#include "nn/kernels/attention_items.h"
#include "nn/kernels/panels.h"
#include "nn/kernels/row_kernels.h"
#include "nn/kernels/rows.h"

namespace braid::inline nn {
namespace {

using attention_items::BlockWalk;
using attention_items::HeadView;
using attention_items::PageView;
using attention_items::Scratch;
using attention_items::Shape;
using attention_items::WorkItem;
using panels::GemmTasks;

constexpr int64_t kPhases = 8;  // of a layer; the first has one more

// Threads that pass through the same phases, whose tasks they take one by one.
class Team {
 public:
  explicit Team(int64_t phases)
      : threads_(at::in_parallel_region() ? 1 : at::get_num_threads()), next_(phases) {}

  int64_t threads() const { return threads_; }

  // Every thread calls body() once.
  template <typename Body>
  void run(const Body& body) {
#if defined(_OPENMP)
#pragma omp parallel num_threads(threads_) if (threads_ > 1)
#endif
    body();
  }
  // Called by every thread for each phase in turn; returns when all tasks of the phase are done.
  template <typename Task>
  void phase(int64_t number, int64_t tasks, const Task& task) {
    for (int64_t i = take(number); i < tasks; i = take(number)) task(i);
#if defined(_OPENMP)
#pragma omp barrier
#endif
  }

 private:
  int64_t take(int64_t number) { return next_[number].fetch_add(1, std::memory_order_relaxed); }

  int threads_;
  std::vector<std::atomic<int64_t>> next_;
};

// What the layers read and write: rows of T tokens each.
struct Buffers {
  at::Tensor memory;
  std::array<float*, 2> hidden;  // before and after an addition, in turn
  float *normed, *qkv, *mixed, *gemm_out, *gate_up, *active;

  Buffers(const at::Tensor& h, const StepLayer& layer) {
    const int64_t rows = h.size(0), hidden_size = h.size(1);
    const int64_t wide = layer.qkv.packed.size(0), mid = layer.output.packed.size(1),
                  inner = layer.down.packed.size(1);
    memory = at::empty({rows * (4 * hidden_size + wide + mid + 3 * inner)}, h.options());
    float* at = memory.mutable_data_ptr<float>();
    const auto take = [&](int64_t width) { return std::exchange(at, at + rows * width); };
    hidden = {take(hidden_size), take(hidden_size)};
    normed = take(hidden_size), gemm_out = take(hidden_size);
    qkv = take(wide), mixed = take(mid);
    gate_up = take(2 * inner), active = take(inner);
  }
};

class Step {
 public:
  Step(const at::Tensor& h, const at::Tensor& positions, const std::vector<StepLayer>& layers,
       const std::vector<KvLayer>& kv, const AttentionBatch& batch, const StepOptions& options)
      : layers_(layers),
        kv_(kv),
        batch_(batch),
        options_(options),
        shape_(options.layout, options.scores),
        items_(attention_items::forward_items(batch, shape_)),
        positions_(positions.const_data_ptr<int64_t>()),
        rows_(h.size(0)),
        width_(h.size(1)),
        buffers_(h, layers[0]),
        team_(kPhases * static_cast<int64_t>(layers.size()) + 1) {
    std::memcpy(buffers_.hidden[0], h.const_data_ptr<float>(), h.nbytes());
  }

  void run(float* out) {
    team_.run([&] {
      Scratch scratch(shape_);
      int64_t number = 0;
      for (size_t i = 0; i < layers_.size(); ++i) {
        run_layer(i, &number, scratch);
        float* const to = i + 1 < layers_.size() ? buffers_.hidden[0] : out;
        const float* const norm = i + 1 < layers_.size()
                                      ? layers_[i + 1].attention_norm_H.const_data_ptr<float>()
                                      : nullptr;
        team_.phase(number++, rows_,
                    [&](int64_t row) { add_and_norm(row, buffers_.hidden[1], to, norm); });
      }
    });
  }

 private:
  // Row of `from` and of the last GEMM to `to`; its norm, unless null, beside it.
  void add_and_norm(int64_t row, const float* from, float* to, const float* norm) const {
    const int64_t at = row * width_;
    rows::add(from + at, buffers_.gemm_out + at, to + at, width_);
    if (norm != nullptr) norm_row(row, to, norm);
  }
  void norm_row(int64_t row, const float* from, const float* norm) const {
    rows::rms_norm(from + row * width_, norm, buffers_.normed + row * width_, width_,
                   static_cast<float>(options_.norm_eps));
  }

  void multiply(int64_t number, const float* x, const StepMatrix& matrix, float* y) {
    const GemmTasks tasks(x, matrix.packed, matrix.bias, y, rows_, team_.threads());
    team_.phase(number, tasks.count(), [&](int64_t task) { tasks.run(task); });
  }

  // From the layer's input in hidden[0] to its attention's sum in hidden[1] and its last GEMM.
  void run_layer(size_t index, int64_t* number, Scratch& scratch) {
    const StepLayer& layer = layers_[index];
    if (index == 0)
      team_.phase((*number)++, rows_, [&](int64_t row) {
        norm_row(row, buffers_.hidden[0], layer.attention_norm_H.const_data_ptr<float>());
      });
    multiply((*number)++, buffers_.normed, layer.qkv, buffers_.qkv);
    const PageView<float> pages(kv_[index], shape_);
    team_.phase((*number)++, static_cast<int64_t>(items_.size()),
                [&](int64_t item) { attend_item(item, pages, kv_[index], scratch); });
    multiply((*number)++, buffers_.mixed, layer.output, buffers_.gemm_out);
    team_.phase((*number)++, rows_, [&](int64_t row) {
      add_and_norm(row, buffers_.hidden[0], buffers_.hidden[1],
                   layer.mlp_norm_H.const_data_ptr<float>());
    });
    multiply((*number)++, buffers_.normed, layer.up, buffers_.gate_up);
    const int64_t inner = layer.down.packed.size(1);
    const auto act = options_.activation == Activation::kSilu ? rows::gated_silu : rows::gated_gelu;
    team_.phase((*number)++, rows_, [&](int64_t row) {
      const float* gate = buffers_.gate_up + row * 2 * inner;
      act(gate, gate + inner, buffers_.active + row * inner, inner);
    });
    multiply((*number)++, buffers_.active, layer.down, buffers_.gemm_out);
  }

  // Rotates the heads of an item, puts its key and value into their page and attends.
  void attend_item(int64_t index, const PageView<float>& pages, const KvLayer& layer,
                   Scratch& scratch) const {
    const WorkItem& item = items_[index];
    const int64_t row = item.sequence, depth = shape_.depth, heads = shape_.heads;
    const float* qkv = buffers_.qkv + row * (heads + 2 * shape_.kv_heads) * depth;
    const float* angles = options_.rope.const_data_ptr<float>() + positions_[row] * depth;
    const auto rotate = [&](int64_t head, float* to) {
      rows::rotate_head(qkv + head * depth, angles, angles + depth / 2, to, depth / 2, 1);
    };
    for (int64_t g = 0; g < shape_.group; ++g)
      rotate(item.kv_head * shape_.group + g, &scratch.rows[g * depth]);
    rotate(heads + item.kv_head, scratch.out.data());
    const int64_t position = batch_.cached[row], slot = position % tiles::kKeys;
    const int64_t page = batch_.page_tables[row][position / tiles::kKeys] * pages.stride +
                         item.kv_head * pages.head_stride;
    float* keys = layer.keys.mutable_data_ptr<float>() + page;
    for (int64_t d = 0; d < depth; ++d) keys[d * tiles::kKeys + slot] = scratch.out[d];
    std::memcpy(layer.values.mutable_data_ptr<float>() + page + slot * depth,
                qkv + (heads + shape_.kv_heads + item.kv_head) * depth, depth * sizeof(float));
    const auto count = static_cast<int64_t>(items_.size());
    const WorkItem* const next = index + 1 < count ? &items_[index + 1] : nullptr;
    attend_and_store(BlockWalk<float>{pages, batch_, item, next}, HeadView(buffers_.mixed, shape_),
                     nullptr, shape_, scratch);
  }

  const std::vector<StepLayer>& layers_;
  const std::vector<KvLayer>& kv_;
  const AttentionBatch& batch_;
  const StepOptions& options_;
  Shape shape_;
  std::vector<WorkItem> items_;
  const int64_t* positions_;
  int64_t rows_, width_;
  Buffers buffers_;
  Team team_;
};

}  // namespace

bool can_decode_step(const StepOptions& options, const AttentionBatch& batch) {
  const Shape shape(options.layout, options.scores);
  if (panels::simd_for(at::kFloat) == panels::Simd::kNone || !options.rope.defined()) return false;
  if (shape.padded != shape.depth || shape.group > tiles::kTileRows) return false;
  if (options.activation != Activation::kSilu && options.activation != Activation::kGeluTanh)
    return false;
  for (size_t s = 0; s < batch.page_tables.size(); ++s)
    if (batch.query_begin[s + 1] - batch.query_begin[s] != 1) return false;
  return !batch.page_tables.empty();
}

at::Tensor decode_step(const at::Tensor& h_TH, const at::Tensor& positions_T,
                       const std::vector<StepLayer>& layers, const std::vector<KvLayer>& kv,
                       const AttentionBatch& batch, const StepOptions& options) {
  BRAID_CHECK(layers.size() == kv.size(), "one cache entry per layer");
  at::Tensor out = at::empty_like(h_TH);
  Step(h_TH.contiguous(), positions_T, layers, kv, batch, options)
      .run(out.mutable_data_ptr<float>());
  return out;
}

}  // namespace braid::inline nn
