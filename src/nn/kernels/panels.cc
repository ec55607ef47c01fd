#include "nn/kernels/panels.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/status.h"
#include "nn/kernels/rows.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace braid::inline nn::panels {
namespace {

constexpr int64_t kColumns = 32;  // of a panel
constexpr int64_t kTileRows = 8;  // rows times columns fill half of the registers
// Panels that a thread passes over for each 8 rows stay in its second-level cache, beside rows.
constexpr int64_t kChunkBytes = 384 << 10;
constexpr int64_t kTasksOfThread = 4;      // of few rows, so that threads even out
constexpr int64_t kBlockRows = 256;        // rows of one parallel task
constexpr int64_t kSerialGemms = 1 << 15;  // fewer are not worth waking another thread

// Where the numbers of a panel lie when a tile begins: they are asked for early, from memory into
// the second-level cache and from there into the first.
enum class Place { kMemory, kCache };
template <Place kPlace>
constexpr int64_t kAhead = (kPlace == Place::kMemory ? 8192 : 4096) / sizeof(float);  // words

// Inputs that one step of a tile multiplies by: bf16 comes in pairs.
template <typename T>
constexpr int64_t kStep = sizeof(float) / sizeof(T);

template <typename T>
int64_t panel_size(int64_t in) {
  return (in + kStep<T> - 1) / kStep<T> * kStep<T> * kColumns;
}

int64_t panels_of(int64_t out) { return (out + kColumns - 1) / kColumns; }

// Up to 8 rows of x times one panel, whose first `columns` columns are stored.
template <typename T>
struct Tile {
  const T* x;
  int64_t x_stride;
  const T* w;
  int64_t in;
  const float* bias;  // null: none
  T* y;
  int64_t y_stride, columns;
};

template <typename T>
using TileGemm = void (*)(const Tile<T>&);

// By place, and by rows less one.
template <typename T>
using TileGemms = std::array<std::array<TileGemm<T>, kTileRows>, 2>;

#if defined(__x86_64__)

#define BRAID_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))
#define BRAID_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#define BRAID_AVX2 __attribute__((target("avx2,fma")))
#define BRAID_UNROLL _Pragma("GCC unroll 8")

template <Place kPlace>
BRAID_AVX512 __attribute__((always_inline)) inline void ask_ahead(const void* w) {
  const char* later = static_cast<const char*>(w) + kAhead<kPlace> * sizeof(float);
  __builtin_prefetch(later, 0, kPlace == Place::kMemory ? 2 : 3);
  __builtin_prefetch(later + 64, 0, kPlace == Place::kMemory ? 2 : 3);
}

BRAID_AVX512 inline __mmask16 columns_from(int64_t columns, int64_t first) {
  const int64_t count = std::clamp<int64_t>(columns - first, 0, 16);
  return static_cast<__mmask16>((1U << count) - 1U);
}

template <Place kPlace, int kRows>
BRAID_AVX512 void tile_avx512(const Tile<float>& tile) {
  __m512 sums[kRows][2];
  BRAID_UNROLL for (int i = 0; i < kRows; ++i) sums[i][0] = sums[i][1] = _mm512_setzero_ps();
  const float *x = tile.x, *w = tile.w;
  const int64_t stride = tile.x_stride, in = tile.in;
  for (int64_t k = 0; k < in; ++k, w += kColumns) {
    const __m512 low = _mm512_loadu_ps(w), high = _mm512_loadu_ps(w + 16);
    ask_ahead<kPlace>(w);
    BRAID_UNROLL for (int i = 0; i < kRows; ++i) {
      const __m512 input = _mm512_set1_ps(x[i * stride + k]);
      sums[i][0] = _mm512_fmadd_ps(input, low, sums[i][0]);
      sums[i][1] = _mm512_fmadd_ps(input, high, sums[i][1]);
    }
  }
  BRAID_UNROLL for (int half = 0; half < 2; ++half) {
    const __mmask16 here = columns_from(tile.columns, 16 * half);
    const __m512 bias = tile.bias == nullptr ? _mm512_setzero_ps()
                                             : _mm512_maskz_loadu_ps(here, tile.bias + 16 * half);
    BRAID_UNROLL for (int i = 0; i < kRows; ++i) _mm512_mask_storeu_ps(
        tile.y + i * tile.y_stride + 16 * half, here, _mm512_add_ps(sums[i][half], bias));
  }
}

// One step: pairs of inputs of each row, or where `bytes` is 2 a last one without its fellow.
template <int kRows>
BRAID_BF16 __attribute__((always_inline)) inline void add_pairs(__m512 (&sums)[kRows][2],
                                                                const int32_t* w,
                                                                const at::BFloat16* x,
                                                                int64_t stride, size_t bytes) {
  const auto low = reinterpret_cast<__m512bh>(_mm512_loadu_si512(w)),
             high = reinterpret_cast<__m512bh>(_mm512_loadu_si512(w + 16));
  BRAID_UNROLL for (int i = 0; i < kRows; ++i) {
    int32_t pair = 0;
    std::memcpy(&pair, x + i * stride, bytes);
    const auto inputs = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
    sums[i][0] = _mm512_dpbf16_ps(sums[i][0], inputs, low);
    sums[i][1] = _mm512_dpbf16_ps(sums[i][1], inputs, high);
  }
}

template <Place kPlace, int kRows>
BRAID_BF16 void tile_bf16(const Tile<at::BFloat16>& tile) {
  __m512 sums[kRows][2];
  BRAID_UNROLL for (int i = 0; i < kRows; ++i) sums[i][0] = sums[i][1] = _mm512_setzero_ps();
  const at::BFloat16* x = tile.x;
  const auto* w = reinterpret_cast<const int32_t*>(tile.w);
  const int64_t stride = tile.x_stride, in = tile.in;
  for (int64_t k = 0; k + 1 < in; k += 2, w += kColumns) {
    ask_ahead<kPlace>(w);
    add_pairs<kRows>(sums, w, x + k, stride, 4);
  }
  if (in % 2 != 0) add_pairs<kRows>(sums, w, x + in - 1, stride, 2);
  BRAID_UNROLL for (int half = 0; half < 2; ++half) {
    const __mmask16 here = columns_from(tile.columns, 16 * half);
    const __m512 bias = tile.bias == nullptr ? _mm512_setzero_ps()
                                             : _mm512_maskz_loadu_ps(here, tile.bias + 16 * half);
    BRAID_UNROLL for (int i = 0; i < kRows; ++i) _mm256_mask_storeu_epi16(
        tile.y + i * tile.y_stride + 16 * half, here,
        reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_add_ps(sums[i][half], bias))));
  }
}

// Rows first .. first + kRows - 1 and 16 columns: more would not fit its registers.
template <int kRows>
BRAID_AVX2 inline void part_avx2(const Tile<float>& tile, int64_t first, int64_t column) {
  __m256 sums[kRows][2];
  BRAID_UNROLL for (int i = 0; i < kRows; ++i) sums[i][0] = sums[i][1] = _mm256_setzero_ps();
  const float *x = tile.x + first * tile.x_stride, *w = tile.w + column;
  const int64_t stride = tile.x_stride, in = tile.in;
  for (int64_t k = 0; k < in; ++k, w += kColumns) {
    const __m256 low = _mm256_loadu_ps(w), high = _mm256_loadu_ps(w + 8);
    _mm_prefetch(reinterpret_cast<const char*>(w + kAhead<Place::kCache>), _MM_HINT_T0);
    BRAID_UNROLL for (int i = 0; i < kRows; ++i) {
      const __m256 input = _mm256_set1_ps(x[i * stride + k]);
      sums[i][0] = _mm256_fmadd_ps(input, low, sums[i][0]);
      sums[i][1] = _mm256_fmadd_ps(input, high, sums[i][1]);
    }
  }
  const int64_t count = std::clamp<int64_t>(tile.columns - column, 0, 16);
  for (int i = 0; i < kRows; ++i) {
    float numbers[16];
    _mm256_storeu_ps(numbers, sums[i][0]);
    _mm256_storeu_ps(numbers + 8, sums[i][1]);
    float* y = tile.y + (first + i) * tile.y_stride + column;
    for (int64_t c = 0; c < count; ++c)
      y[c] = numbers[c] + (tile.bias == nullptr ? 0.0F : tile.bias[column + c]);
  }
}

template <int kRows>
BRAID_AVX2 void tile_avx2(const Tile<float>& tile) {
  constexpr int kFirst = std::min(kRows, 4);
  for (int64_t column = 0; column < tile.columns; column += 16) {
    part_avx2<kFirst>(tile, 0, column);
    if constexpr (kRows > kFirst) part_avx2<kRows - kFirst>(tile, kFirst, column);
  }
}

#undef BRAID_AVX512
#undef BRAID_BF16
#undef BRAID_AVX2
#undef BRAID_UNROLL

template <int... kRows>
TileGemms<float> f32_tiles(Simd simd, std::integer_sequence<int, kRows...>) {
  if (simd == Simd::kAvx512)
    return {
        {{tile_avx512<Place::kMemory, kRows + 1>...}, {tile_avx512<Place::kCache, kRows + 1>...}}};
  return {{{tile_avx2<kRows + 1>...}, {tile_avx2<kRows + 1>...}}};
}

template <int... kRows>
TileGemms<at::BFloat16> bf16_tiles(std::integer_sequence<int, kRows...>) {
  return {{{tile_bf16<Place::kMemory, kRows + 1>...}, {tile_bf16<Place::kCache, kRows + 1>...}}};
}

template <typename T>
TileGemms<T> tiles_of(Simd simd) {
  const auto rows = std::make_integer_sequence<int, kTileRows>();
  if constexpr (std::is_same_v<T, float>) {
    return f32_tiles(simd, rows);
  } else {
    return bf16_tiles(rows);
  }
}

#else

template <typename T>
TileGemms<T> tiles_of(Simd) {
  return {};
}

#endif

// A part of the whole GEMM: rows and panels.
struct Part {
  int64_t row, row_end, panel, panel_end;
};

template <typename T>
struct Gemm {
  Tile<T> whole;  // all rows; `columns` of the whole result
  TileGemms<T> tiles;

  // The first tile of rows brings the panels into the cache.
  void compute(const Part& part) const {
    for (int64_t row = part.row; row < part.row_end; row += kTileRows) {
      const auto& from =
          tiles[static_cast<size_t>(row == part.row ? Place::kMemory : Place::kCache)];
      for (int64_t panel = part.panel; panel < part.panel_end; ++panel) {
        const int64_t column = panel * kColumns;
        Tile<T> tile = whole;
        tile.x += row * whole.x_stride;
        tile.w += panel * panel_size<T>(whole.in);
        tile.y += row * whole.y_stride + column;
        if (tile.bias != nullptr) tile.bias += column;
        tile.columns = std::min(kColumns, whole.columns - column);
        from[std::min(kTileRows, part.row_end - row) - 1](tile);
      }
    }
  }
};

// Tasks of about kBlockRows rows and kChunkBytes of panels; where all rows are one block, several
// for each thread.
template <typename T>
void compute_all(const Gemm<T>& gemm, int64_t rows) {
  const int64_t in = gemm.whole.in, panels = panels_of(gemm.whole.columns);
  const int64_t chunk_bytes = panel_size<T>(in) * static_cast<int64_t>(sizeof(T)) * panels;
  const int64_t blocks = (rows + kBlockRows - 1) / kBlockRows, threads = at::get_num_threads();
  const int64_t least = blocks == 1 ? kTasksOfThread * threads : threads;
  const int64_t chunks = std::min(panels, std::max(least, chunk_bytes / kChunkBytes + 1));
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows, tasks = blocks * chunks;
  const bool serial = rows * in * gemm.whole.columns < kSerialGemms;
  const auto compute = [&](int64_t task) {
    const int64_t chunk = task / blocks, block = task % blocks;
    gemm.compute({tiles * block / blocks * kTileRows,
                  std::min(rows, tiles * (block + 1) / blocks * kTileRows), panels * chunk / chunks,
                  panels * (chunk + 1) / chunks});
  };
  if (serial) {
    for (int64_t task = 0; task < tasks; ++task) compute(task);
    return;
  }
  share_tasks(tasks, [&](const auto& take) {
    for (int64_t task = take(); task < tasks; task = take()) compute(task);
  });
}

template <typename T>
at::Tensor typed_gemm(const at::Tensor& x_TI, const at::Tensor& packed, const at::Tensor& b_O,
                      Simd simd) {
  const at::Tensor x = x_TI.stride(1) == 1 ? x_TI : x_TI.contiguous();
  const at::Tensor bias = b_O.defined() ? b_O.to(at::kFloat).contiguous() : at::Tensor();
  const int64_t rows = x.size(0), in = packed.size(1), out = packed.size(0);
  at::Tensor y = at::empty({rows, out}, x.options());
  Gemm<T> gemm;
  gemm.tiles = tiles_of<T>(simd);
  gemm.whole = {x.const_data_ptr<T>(),
                x.stride(0),
                packed.const_data_ptr<T>(),
                in,
                bias.defined() ? bias.const_data_ptr<float>() : nullptr,
                y.mutable_data_ptr<T>(),
                out,
                out};
  compute_all(gemm, rows);
  return y;
}

template <typename T>
struct Packing {
  const T* from;
  int64_t row_stride, column_stride, out, in;
  T* to;

  // Inputs are taken in blocks whose lines, here and there, stay in the first-level cache.
  void pack_panel(int64_t panel) const {
    constexpr int64_t kBlock = 16;
    const int64_t columns = std::min(kColumns, out - panel * kColumns);
    T* target = to + panel * panel_size<T>(in);
    if (columns < kColumns || in % kStep<T> != 0)
      std::fill_n(target, panel_size<T>(in), static_cast<T>(0));
    const T* source = from + panel * kColumns * row_stride;
    for (int64_t k = 0; k < in; k += kBlock)
      pack_block(source + k * column_stride, target + k * kColumns, columns,
                 std::min(kBlock, in - k));
  }
  void pack_block(const T* source, T* target, int64_t columns, int64_t inputs) const {
    const auto put = [&](int64_t column, int64_t k) {
      target[k / kStep<T> * kStep<T> * kColumns + column * kStep<T> + k % kStep<T>] =
          source[column * row_stride + k * column_stride];
    };
    if (column_stride == 1) {
      for (int64_t column = 0; column < columns; ++column)
        for (int64_t k = 0; k < inputs; ++k) put(column, k);
    } else {
      for (int64_t k = 0; k < inputs; ++k)
        for (int64_t column = 0; column < columns; ++column) put(column, k);
    }
  }
};

template <typename T>
at::Tensor typed_pack(const at::Tensor& w) {
  const int64_t out = w.size(0), in = w.size(1), panels = panels_of(out);
  at::Tensor packed = at::empty({panels * panel_size<T>(in)}, w.options());
  const Packing<T> packing{w.const_data_ptr<T>(),       w.stride(0), w.stride(1), out, in,
                           packed.mutable_data_ptr<T>()};
  at::parallel_for(0, panels, std::max<int64_t>(1, kSerialGemms / panel_size<T>(in)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t panel = begin; panel < end; ++panel) packing.pack_panel(panel);
                   });
  return packed.as_strided({out, in}, {in, 1});
}

}  // namespace

Simd simd_for(at::ScalarType dtype) {
#if defined(__x86_64__)
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl");
  if (dtype == at::kBFloat16)
    return wide && __builtin_cpu_supports("avx512bf16") ? Simd::kAvx512 : Simd::kNone;
  if (dtype != at::kFloat) return Simd::kNone;
  if (wide) return Simd::kAvx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Simd::kAvx2;
#endif
  static_cast<void>(dtype);
  return Simd::kNone;
}

at::Tensor pack(const at::Tensor& w_OI) {
  return w_OI.scalar_type() == at::kFloat ? typed_pack<float>(w_OI)
                                          : typed_pack<at::BFloat16>(w_OI);
}

at::Tensor gemm(const at::Tensor& x_TI, const at::Tensor& packed, const at::Tensor& b_O,
                Simd simd) {
  BRAID_CHECK(x_TI.scalar_type() == packed.scalar_type(), "a GEMM of two types");
  BRAID_CHECK(x_TI.size(1) == packed.size(1), "a GEMM of sizes that do not fit");
  return x_TI.scalar_type() == at::kFloat ? typed_gemm<float>(x_TI, packed, b_O, simd)
                                          : typed_gemm<at::BFloat16>(x_TI, packed, b_O, simd);
}

GemmTasks::GemmTasks(const float* x, const at::Tensor& packed, const at::Tensor& b_O, float* y,
                     int64_t rows, int64_t threads)
    : x_(x),
      w_(packed.const_data_ptr<float>()),
      bias_(b_O.defined() ? b_O.const_data_ptr<float>() : nullptr),
      y_(y),
      rows_(rows),
      in_(packed.size(1)),
      out_(packed.size(0)),
      simd_(simd_for(at::kFloat)) {
  const int64_t panels = panels_of(out_);
  const int64_t bytes = panels * panel_size<float>(in_) * static_cast<int64_t>(sizeof(float));
  count_ = std::min(panels, std::max(kTasksOfThread * threads, bytes / kChunkBytes + 1));
}

void GemmTasks::run(int64_t task) const {
  const int64_t panels = panels_of(out_);
  const Gemm<float> gemm{{x_, in_, w_, in_, bias_, y_, out_, out_}, tiles_of<float>(simd_)};
  gemm.compute({0, rows_, panels * task / count_, panels * (task + 1) / count_});
}

}  // namespace braid::inline nn::panels
