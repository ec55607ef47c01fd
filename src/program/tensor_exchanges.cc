#include "program/tensor_exchanges.h"

namespace braid::inline program {
namespace {

// Of the log-prob of a token over a vocabulary that ranks share (nn/shared_head.h): the largest
// logit, then the sum of exponentials, the same times logits, and the target's, in f64.
constexpr double kStatistic = 8, kStatistics = 24;

class ExchangeLists {
 public:
  ExchangeLists(const TensorExchange& exchange, OpBody* body) : of_(exchange), body_(body) {}

  void forward(bool vocabulary) {
    const auto layers = static_cast<double>(body_->layers.size());
    list_ = &body_->forward;
    if (body_->embedding) leave({1, true});
    enter({2 * layers});
    leave({2 * layers});
    if (!body_->head) return;
    enter({1, true});
    if (!vocabulary) return;
    add(OpKind::kAllReduce, {1, true, true}, kStatistic, 0);
    sum({1, true, true}, kStatistics, kStatistic);
  }

  // Recomputation runs the forward of a layer again, with gradients throughout.
  void backward(const std::vector<LayerFlow>& flows, bool vocabulary) {
    const bool again = body_->recompute == Recompute::kFull;
    double gathers = 0, sums = 0;
    for (const LayerFlow& flow : flows) {
      if (!flow.output) continue;
      gathers += again ? 4 : 1 + (flow.middle ? 1 : 0);
      sums += again ? 4 : (flow.middle ? 1 : 0) + (flow.input ? 1 : 0);
    }
    list_ = &body_->backward;
    if (body_->head && vocabulary) sum({1, true, true}, of_.row_bytes, of_.number_bytes);
    enter({gathers});
    leave({sums});
    if (body_->embedding && !flows.empty() && flows.front().input) enter({1, true});
  }

 private:
  struct Times {
    double times = 0;
    bool at_end = false, of_head = false;
  };

  void add(OpKind kind, const Times& times, double row_bytes, double multiple) {
    if (times.times > 0)
      list_->push_back(
          {kind, of_.group, times.times, 0, row_bytes, times.at_end, times.of_head, multiple});
  }
  // On every rank. Two terms have one order; more are added in that of the ranks by who has all
  // terms of a part.
  void sum(const Times& times, double row_bytes, double number_bytes) {
    if (of_.reduction == Reduction::kNative || of_.ranks == 2)
      return add(OpKind::kAllReduce, times, row_bytes, 0);
    add(OpKind::kAllToAll, times, row_bytes, of_.ranks * number_bytes);
    add(OpKind::kAllGather, times, row_bytes, of_.ranks * number_bytes);
  }
  void leave(const Times& times) {
    if (!of_.sequence_parallel) return sum(times, of_.row_bytes, of_.number_bytes);
    const bool native = of_.reduction == Reduction::kNative;
    add(native ? OpKind::kReduceScatter : OpKind::kAllToAll, times, of_.row_bytes,
        of_.ranks * of_.row_bytes);
  }
  void enter(const Times& times) {
    if (of_.sequence_parallel)
      add(OpKind::kAllGather, times, of_.row_bytes, of_.ranks * of_.row_bytes);
  }

  const TensorExchange& of_;
  OpBody* body_;
  std::vector<InsideOp>* list_ = nullptr;
};

}  // namespace

std::vector<LayerFlow> layer_flows(const OpBody& body, const TrainedParts& trained) {
  bool recorded = !body.embedding || trained.embedding;
  std::vector<LayerFlow> out;
  for (int64_t layer = body.layers.begin; layer < body.layers.end; ++layer) {
    const bool middle = recorded || trained.attention;
    out.push_back({recorded, middle, middle || trained.mlp});
    recorded = out.back().output;
  }
  return out;
}

std::vector<InsideOp> list_draw(const TensorExchange& exchange, int64_t vocabulary,
                                const SamplingNeeds& needs) {
  constexpr double kF32 = 4, kF64 = 8;
  const auto ranks = static_cast<double>(exchange.ranks);
  std::vector<InsideOp> out;
  const auto add = [&](OpKind kind, double row_bytes) {
    out.push_back({kind, exchange.group, 1, 0, row_bytes});
  };
  if (!shares_draws(vocabulary, exchange.ranks)) {
    const int64_t widest = (vocabulary + exchange.ranks - 1) / exchange.ranks;
    add(OpKind::kAllGather, ranks * static_cast<double>(widest) * kF32);
    return out;
  }
  add(OpKind::kAllReduce, kTopNumbers * kF32);
  add(OpKind::kAllGather, ranks * kWeightLanes * kF32);
  add(OpKind::kAllGather, ranks * static_cast<double>(sum_numbers(needs)) * kF64);
  if (needs.scans) add(OpKind::kAllGather, ranks * kFoundNumbers * kF64);
  return out;
}

void list_tensor_exchanges(const TensorExchange& exchange, const TrainedParts& trained,
                           bool vocabulary, OpBody* body) {
  ExchangeLists lists(exchange, body);
  lists.forward(vocabulary);
  if (body->trains) lists.backward(layer_flows(*body, trained), vocabulary);
}

}  // namespace braid::inline program
