// The one table between elements of tensor kinds, in which layouts and messages count, and rows and
// columns of Hugging Face tensors, in which nn holds them. The kinds of a map partition
// model_tensors() (and, of a map with adapters, PEFT's tensors): every number is in one kind once.
// Plain values; thread-safe.
//
// The elements of a kind are unit after unit (attention heads, columns of the MLP, vocabulary
// rows), and within a unit piece after piece, each row-major: of a key-value head its rows of k,
// then of its rows of v, then of both biases.
#pragma once

#include <string>
#include <vector>

#include "models/family.h"
#include "program/layout.h"

namespace braid::inline program {

// A tensor's part in a kind. Of unit u it has the rows (or columns) [first + u * per_unit, first +
// (u + 1) * per_unit) and all columns (or rows). A vector is a column.
struct TensorPiece {
  std::string name;               // as in model_tensors(); of a layer without the layer's prefix
  int64_t rows = 0, columns = 1;  // of the whole tensor, a matrix as [out, in]
  bool by_columns = false;
  int64_t first = 0, per_unit = 0;
  friend bool operator==(const TensorPiece&, const TensorPiece&) = default;
};

struct MappedKind {
  TensorKind kind;
  std::vector<TensorPiece> pieces;
  friend bool operator==(const MappedKind&, const MappedKind&) = default;
};

struct TensorMap {
  std::string layer_prefix_begin, layer_prefix_end;  // around a layer's index
  std::vector<MappedKind> kinds;
  friend bool operator==(const TensorMap&, const TensorMap&) = default;
};

// The weights of a model, in the order of tensor_kinds(); kinds that ModelSize does not count
// (biases that are not cut, norms of queries and keys) follow.
TensorMap tensor_map(const ModelSpec& spec);
// What training with adapters changes: A [rank, in] and B [out, rank] of the linear modules that
// are targets (models/adapter_targets.h; PEFT's names), and the scalar head.
TensorMap adapter_map(const ModelSpec& spec, int64_t rank, const std::vector<std::string>& targets);

std::vector<TensorKind> kinds_of(const TensorMap& map);

// A rectangle of a tensor: rows and columns that are elements [begin, begin + rows * columns) of
// the kind, row after row.
struct TensorRegion {
  std::string tensor;  // full Hugging Face name
  Interval rows, columns;
  int64_t begin = 0;
  friend bool operator==(const TensorRegion&, const TensorRegion&) = default;
};
// Appends the rectangles that elements [wanted.begin, wanted.end) of a block of rows and columns of
// a tensor are, counted row by row: a part of a row, whole rows, a part of a row. They are numbered
// from `block_begin` on.
void add_rectangles(const std::string& tensor, const Interval& rows, const Interval& columns,
                    Interval wanted, int64_t block_begin, std::vector<TensorRegion>* out);

// What elements of a kind in a layer (0 for an end of the model) are, in the order of the elements.
std::vector<TensorRegion> tensor_regions(const TensorMap& map, int32_t item, int64_t layer,
                                         const Interval& elements);

}  // namespace braid::inline program
