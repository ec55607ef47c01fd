#include "tabular/moves.h"

#include <algorithm>
#include <map>

#include "base/text.h"

namespace braid::tabular {
namespace {

constexpr size_t kMaxLayouts = 4096;  // the two matrices of a pair stay below 256 MiB

// The distinct layouts of one call and which of them each option has.
struct LayoutIndex {
  std::map<Layout, int> number;
  std::vector<int> of_option;
};

Result<LayoutIndex> index_layouts(const Call& call) {
  LayoutIndex index;
  for (const Option& option : call.options) {
    const int next = static_cast<int>(index.number.size());
    index.of_option.push_back(index.number.emplace(option.layout, next).first->second);
  }
  if (index.number.size() > kMaxLayouts)
    return invalid_input(cat("call '", call.name, "' has ", index.number.size(),
                             " different layouts; at most ", kMaxLayouts, " are supported"));
  return index;
}

// Durations by layout number, [other][train].
struct LayoutMatrix {
  size_t others = 0;
  size_t trains = 0;
  std::vector<int64_t> there_us, back_us;
};

LayoutMatrix fill_matrix(const Problem& problem, const std::string& model_size,
                         const LayoutIndex& other, const LayoutIndex& train) {
  LayoutMatrix matrix;
  matrix.others = other.number.size();
  matrix.trains = train.number.size();
  matrix.there_us.assign(matrix.others * matrix.trains, 0);
  matrix.back_us.assign(matrix.others * matrix.trains, 0);
  for (const Move& move : problem.moves) {
    if (move.model_size != model_size || move.source == move.destination) continue;
    const auto set = [&](const Layout& o, const Layout& t, std::vector<int64_t>& out) {
      const auto at_other = other.number.find(o);
      const auto at_train = train.number.find(t);
      if (at_other != other.number.end() && at_train != train.number.end())
        out[at_other->second * matrix.trains + at_train->second] = move.time_us;
    };
    set(move.source, move.destination, matrix.there_us);
    set(move.destination, move.source, matrix.back_us);
  }
  return matrix;
}

// All durations of moves to and from one layout of a call, over all pairs that the call is part of.
using Signature = std::vector<int64_t>;

void append_side(const LayoutMatrix& matrix, bool as_train, size_t layout, Signature& out) {
  const size_t count = as_train ? matrix.others : matrix.trains;
  for (size_t i = 0; i < count; ++i) {
    const size_t at = as_train ? i * matrix.trains + layout : layout * matrix.trains + i;
    out.push_back(matrix.there_us[at]);
    out.push_back(matrix.back_us[at]);
  }
}

// Which class each layout of a call is in, a layout that stands for each class, and which classes
// move for free.
struct Classes {
  std::vector<int> of_layout;
  std::vector<size_t> layout_of;
  std::vector<bool> is_free;
};

Classes classify(int call, size_t num_layouts, const std::vector<MovePair>& pairs,
                 const std::vector<LayoutMatrix>& matrices) {
  Classes classes;
  std::map<Signature, int> seen;
  for (size_t layout = 0; layout < num_layouts; ++layout) {
    Signature signature;
    for (size_t p = 0; p < pairs.size(); ++p)
      if (pairs[p].train == call || pairs[p].other == call)
        append_side(matrices[p], pairs[p].train == call, layout, signature);
    const bool is_free =
        std::all_of(signature.begin(), signature.end(), [](int64_t us) { return us == 0; });
    const auto [entry, is_new] =
        seen.emplace(std::move(signature), static_cast<int>(classes.layout_of.size()));
    classes.of_layout.push_back(entry->second);
    if (!is_new) continue;
    classes.layout_of.push_back(layout);
    classes.is_free.push_back(is_free);
  }
  return classes;
}

void fill_least(MoveMatrix& matrix, size_t num_other_classes) {
  const auto least = [](int64_t& smallest, int64_t value) { smallest = std::min(smallest, value); };
  matrix.least_there_by_train.assign(matrix.num_train_classes, INT64_MAX);
  matrix.least_back_by_train.assign(matrix.num_train_classes, INT64_MAX);
  matrix.least_there_by_other.assign(num_other_classes, INT64_MAX);
  matrix.least_back_by_other.assign(num_other_classes, INT64_MAX);
  matrix.least_there_us = matrix.least_back_us = INT64_MAX;
  for (size_t o = 0; o < num_other_classes; ++o)
    for (int t = 0; t < matrix.num_train_classes; ++t) {
      const size_t at = matrix.at(static_cast<int>(o), t);
      least(matrix.least_there_by_train[t], matrix.there_us[at]);
      least(matrix.least_there_by_other[o], matrix.there_us[at]);
      least(matrix.least_there_us, matrix.there_us[at]);
      least(matrix.least_back_by_train[t], matrix.back_us[at]);
      least(matrix.least_back_by_other[o], matrix.back_us[at]);
      least(matrix.least_back_us, matrix.back_us[at]);
    }
}

MoveMatrix by_class(const MovePair& pair, const LayoutMatrix& layouts, const Classes& other,
                    const Classes& train) {
  MoveMatrix matrix;
  matrix.train = pair.train;
  matrix.other = pair.other;
  matrix.num_train_classes = static_cast<int>(train.layout_of.size());
  for (const size_t o : other.layout_of)
    for (const size_t t : train.layout_of) {
      matrix.there_us.push_back(layouts.there_us[o * layouts.trains + t]);
      matrix.back_us.push_back(layouts.back_us[o * layouts.trains + t]);
    }
  fill_least(matrix, other.layout_of.size());
  return matrix;
}

}  // namespace

Result<CompiledMoves> compile_moves(const Problem& problem, const std::vector<MovePair>& pairs) {
  const size_t num_calls = problem.calls.size();
  std::vector<LayoutIndex> layouts(num_calls);
  for (const MovePair& pair : pairs)
    for (const int call : {pair.train, pair.other}) {
      BRAID_ASSIGN(layouts[call], index_layouts(problem.calls[call]));
    }
  std::vector<LayoutMatrix> matrices;
  for (const MovePair& pair : pairs)
    matrices.push_back(fill_matrix(problem, problem.calls[pair.train].model_size,
                                   layouts[pair.other], layouts[pair.train]));
  CompiledMoves compiled;
  std::vector<Classes> classes;
  for (size_t c = 0; c < num_calls; ++c) {
    const int call = static_cast<int>(c);
    classes.push_back(classify(call, layouts[c].number.size(), pairs, matrices));
    // A call without moves has no layouts here: one free class holds all its options.
    if (layouts[c].number.empty()) classes.back().is_free = {true};
    std::vector<int32_t> of_option(problem.calls[c].options.size(), 0);
    for (size_t i = 0; i < layouts[c].of_option.size(); ++i)
      of_option[i] = classes[c].of_layout[layouts[c].of_option[i]];
    compiled.class_of_option.push_back(std::move(of_option));
    compiled.is_free.push_back(classes[c].is_free);
  }
  for (size_t p = 0; p < pairs.size(); ++p)
    compiled.matrices.push_back(
        by_class(pairs[p], matrices[p], classes[pairs[p].other], classes[pairs[p].train]));
  return compiled;
}

}  // namespace braid::tabular
