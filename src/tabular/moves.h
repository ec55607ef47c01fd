// Compiles the move table of a problem into one dense matrix per pair of calls, with layouts that
// behave alike merged into move classes. Pure.
#pragma once

#include <vector>

#include "tabular/model.h"

namespace braid::tabular {

struct CompiledMoves {
  std::vector<MoveMatrix> matrices;                   // one per pair, least_* filled
  std::vector<std::vector<int32_t>> class_of_option;  // [call][option]
  std::vector<std::vector<bool>> is_free;  // [call][class]: no move of the class takes time
};

// kInvalidInput when a call of a pair has more than 4096 distinct layouts.
Result<CompiledMoves> compile_moves(const Problem& problem, const std::vector<MovePair>& pairs);

}  // namespace braid::tabular
