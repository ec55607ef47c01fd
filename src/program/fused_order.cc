#include "program/fused_order.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <tuple>
#include <vector>

#include "base/text.h"

namespace braid::inline program {
namespace {

// Messages of a pipeline from one node to another, forward or backward: those sent and not taken.
using PassChannel = std::tuple<int32_t, int32_t, int32_t, PassKind>;

class OrderRun {
 public:
  // `mends`: a pass whose message was sent before the one that is due is run first; such an order
  // is an error otherwise.
  OrderRun(const PipelineProblem& problem, const FusedOrder& order, bool mends)
      : problem_(problem),
        order_(order),
        mends_(mends),
        done_(problem.pipelines.size()),
        next_(order.size()),
        out_(order.size()) {
    for (size_t i = 0; i < done_.size(); ++i) {
      const Pipeline& pipeline = problem.pipelines[i];
      const auto passes = static_cast<size_t>(pipeline.num_stages()) * pipeline.micro_batches;
      for (auto& kind : done_[i]) kind.assign(passes, false);
    }
  }

  Result<FusedOrder> run() {
    if (std::ssize(order_) != problem_.nodes)
      return invalid_input("fused order: a list for every node");
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t node = 0; node < order_.size(); ++node) {
        BRAID_ASSIGN(const bool any, walk(node));
        moved = moved || any;
      }
    }
    for (size_t node = 0; node < order_.size(); ++node)
      if (next_[node] < order_[node].size())
        return wrong(node, "waits for what waits for it, or for what is missing");
    for (const auto& pipeline : done_)
      for (const auto& kind : pipeline)
        if (std::find(kind.begin(), kind.end(), false) != kind.end())
          return invalid_input("fused order: a pass is missing");
    return std::move(out_);
  }

 private:
  // Runs a node's passes as far as they are ready; whether any was.
  Result<bool> walk(size_t node) {
    bool moved = false;
    for (; next_[node] < order_[node].size(); ++next_[node]) {
      const PipelineOp& op = order_[node][next_[node]];
      if (!exists(op, node)) return wrong(node, "is unknown or on another node than its stage");
      if (of(op, op.kind, op.stage)) {
        if (came_forward(node, op)) continue;
        return wrong(node, "occurs twice");
      }
      if (!ready(op)) return moved;
      BRAID_TRY(take_message(node, op));
      execute(node, op);
      moved = true;
    }
    return moved;
  }

  Status wrong(size_t node, const char* what) const {
    return invalid_input(cat("fused order: node ", node, ", pass ", next_[node], ": ", what));
  }

  std::vector<bool>::reference of(const PipelineOp& op, PassKind kind, int32_t stage) {
    const int32_t micro_batches = problem_.pipelines[op.pipeline].micro_batches;
    return done_[op.pipeline][kind == PassKind::kForward ? 0 : 1]
                [static_cast<size_t>(stage) * micro_batches + op.micro_batch];
  }

  bool exists(const PipelineOp& op, size_t node) const {
    if (op.pipeline < 0 || op.pipeline >= std::ssize(done_) || op.kind == PassKind::kWeight)
      return false;
    const Pipeline& pipeline = problem_.pipelines[op.pipeline];
    return op.stage >= 0 && op.stage < pipeline.num_stages() && op.micro_batch >= 0 &&
           op.micro_batch < pipeline.micro_batches &&
           pipeline.stages[op.stage] == static_cast<int32_t>(node);
  }

  bool ready(const PipelineOp& op) {
    if (op.kind == PassKind::kForward)
      return op.stage == 0 || of(op, PassKind::kForward, op.stage - 1);
    const bool last = op.stage + 1 == problem_.pipelines[op.pipeline].num_stages();
    return of(op, PassKind::kForward, op.stage) &&
           (last || of(op, PassKind::kBackward, op.stage + 1));
  }

  // The stage that a pass's message comes from (-1: it takes none) or goes to, by `step`.
  int32_t neighbour(const PipelineOp& op, int32_t step) const {
    const int32_t stage = op.stage + (op.kind == PassKind::kForward ? step : -step);
    return stage < problem_.pipelines[op.pipeline].num_stages() ? stage : -1;
  }
  PassChannel channel(const PipelineOp& op, int32_t from, int32_t to) const {
    const auto& stages = problem_.pipelines[op.pipeline].stages;
    return {op.pipeline, stages[from], stages[to], op.kind};
  }

  Status take_message(size_t node, const PipelineOp& op) {
    const int32_t from = neighbour(op, -1);
    if (from < 0) return ok_status();
    auto& sent = sent_[channel(op, from, op.stage)];
    while (sent.front() != op) {
      if (!mends_) return wrong(node, "takes a message before one that was sent earlier");
      const PipelineOp first = sent.front();
      sent.pop_front();
      ahead_[node].push_back(first);
      execute(node, first);
    }
    sent.pop_front();
    return ok_status();
  }

  // Whether a pass was run before its place in the list, which it then has no longer.
  bool came_forward(size_t node, const PipelineOp& op) {
    auto& ahead = ahead_[node];
    const auto found = std::find(ahead.begin(), ahead.end(), op);
    if (found == ahead.end()) return false;
    ahead.erase(found);
    return true;
  }

  void execute(size_t node, const PipelineOp& op) {
    of(op, op.kind, op.stage) = true;
    out_[node].push_back(op);
    const int32_t to = neighbour(op, 1);
    if (to < 0) return;
    PipelineOp taker = op;
    taker.stage = to;
    sent_[channel(op, op.stage, to)].push_back(taker);
  }

  const PipelineProblem& problem_;
  const FusedOrder& order_;
  const bool mends_;
  std::vector<std::array<std::vector<bool>, 2>> done_;  // [pipeline][forward, backward]
  std::vector<size_t> next_;                            // [node]
  std::map<PassChannel, std::deque<PipelineOp>> sent_;  // as the passes that take them
  std::map<size_t, std::vector<PipelineOp>> ahead_;     // [node]
  FusedOrder out_;
};

}  // namespace

Status verify_order(const PipelineProblem& problem, const FusedOrder& order) {
  return OrderRun(problem, order, /*mends=*/false).run().status();
}

Result<FusedOrder> order_of_messages(const PipelineProblem& problem, const FusedOrder& order) {
  return OrderRun(problem, order, /*mends=*/true).run();
}

}  // namespace braid::inline program
