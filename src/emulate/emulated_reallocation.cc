// A reallocation on an emulated rank: the runtime's own run of its messages (weights/reallocate.h),
// which begins each in the plan's order and lets relays wait, over weights that have no values. The
// carrier gives each message to its lane, where its time passes.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <set>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "comm/started_work.h"
#include "emulate/emulated_rank.h"
#include "weights/reallocate.h"

namespace braid::inline emulate {
namespace {

// Weights without values: tensors of them have sizes and no memory.
class NoWeights : public ElementStore {
 public:
  at::TensorOptions options() const override {
    return at::TensorOptions().dtype(at::kBFloat16).device(at::kMeta);
  }
  at::Tensor span(int32_t, int64_t, const Interval& elements) const override {
    return at::empty({elements.size()}, options());
  }
  void read(int32_t, int64_t, const Interval&, const at::Tensor&) const override {}
  void write(int32_t, int64_t, const Interval&, const at::Tensor&) override {}
};

// A message in its lane, as who has begun it waits for it.
class PassingMessage : public c10d::Work {
 public:
  using Passed = std::function<void(int64_t end_ns)>;
  PassingMessage(const EndTimes& ends, size_t number, Passed passed)
      : ends_(ends), number_(number), passed_(std::move(passed)) {}

  // The lane has a deadline, so this needs none.
  bool wait(std::chrono::milliseconds) override {
    const Result<int64_t> end_ns = ends_.wait(number_);
    if (!end_ns.ok()) throw std::runtime_error(end_ns.status().message());
    passed_(*end_ns);
    return true;
  }

 private:
  const EndTimes& ends_;
  const size_t number_;
  const Passed passed_;
};

}  // namespace

class EmulatedRank::WeightCarrier : public MessageCarrier {
 public:
  // `ready_ns`: since when the rank is ready for the reallocation.
  WeightCarrier(EmulatedRank& rank, int32_t entry, int64_t* ready_ns)
      : rank_(rank), entry_(entry), ready_ns_(ready_ns) {}

  DeviceId rank() const override { return rank_.work_.rank; }
  Pending send(const Message& message, const at::Tensor&, const std::string& name) override {
    return begin(message, Transfer::kSend, message.to, name);
  }
  Pending receive(const Message& message, const at::Tensor&, const std::string& name) override {
    return begin(message, Transfer::kReceive, message.from, name);
  }

 private:
  // What was waited for before is over. A message passes as one, whatever pieces it travels in.
  Pending begin(const Message& message, Transfer transfer, DeviceId peer, const std::string& name) {
    const auto number =
        static_cast<size_t>(&message - rank_.program_.reallocations[entry_].messages.data());
    if (begun_.insert(number).second) rank_.message_begins_[entry_]->set(number, *ready_ns_);
    auto started = std::make_unique<StartedWork>();
    started->work = c10::make_intrusive<PassingMessage>(
        *rank_.message_ends_[entry_], number,
        [ready_ns = ready_ns_](int64_t end_ns) { *ready_ns = std::max(*ready_ns, end_ns); });
    started->context.global_rank = rank_.work_.rank.value;
    started->context.board = &rank_.world_.position();
    started->transfer = transfer;
    started->tensor = name, started->group = rank_.everyone_->name();
    started->peers = {peer.value};
    started->started = std::chrono::steady_clock::now();
    return Pending(std::move(started));
  }

  EmulatedRank& rank_;
  const int32_t entry_;
  int64_t* const ready_ns_;
  std::set<size_t> begun_;  // messages
};

Status EmulatedRank::run_reallocation(int32_t index) {
  BRAID_ASSIGN(int64_t ready_ns, move_ready(index));
  const int32_t entry = list()[index].detail;
  NoWeights weights;
  ReallocateOptions options;
  options.beside = false;  // this is a thread of its own
  ReallocationRun run(program_.reallocations[entry].messages, &weights, &weights,
                      std::make_unique<WeightCarrier>(*this, entry, &ready_ns), options);
  BRAID_TRY(run.start({}));
  BRAID_TRY(run.finish());
  reallocated_.set(index, ready_ns);
  return ok_status();
}

}  // namespace braid::inline emulate
