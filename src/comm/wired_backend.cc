#include "comm/wired_backend.h"

#include <ATen/Dispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <stdexcept>

#include "base/text.h"
#include "comm/name_hash.h"
#include "host/progress.h"

namespace braid::inline comm {
namespace {

constexpr int32_t kTogether = -1;                // the tag of collectives; messages have others
constexpr int64_t kMostReducedInTree = 1 << 16;  // bytes; more travels around the ring
constexpr int64_t kMostGatheredInTree = 1 << 20;
constexpr int64_t kPieceBytes = 1 << 20;  // of a broadcast, passed on before the next one comes

using c10d::ReduceOp;
using Milliseconds = std::chrono::milliseconds;

template <typename T>
void reduce_numbers(T* into, const T* from, int64_t count, ReduceOp::RedOpType op) {
  for (int64_t i = 0; i < count; ++i) {
    if (op == ReduceOp::SUM) {
      into[i] = static_cast<T>(into[i] + from[i]);
    } else {
      into[i] = (op == ReduceOp::MAX) == (from[i] > into[i]) ? from[i] : into[i];
    }
  }
}

void reduce_into(const at::Tensor& into, const at::Tensor& from, ReduceOp::RedOpType op) {
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, into.scalar_type(), "reduce_into", [&] {
    reduce_numbers(into.mutable_data_ptr<scalar_t>(), from.const_data_ptr<scalar_t>(), into.numel(),
                   op);
  });
}

at::Tensor flat(const at::Tensor& tensor) { return tensor.detach().view({-1}); }

// Parts of `whole` numbers for each of some places.
int64_t part_begin(int64_t whole, int place, int size) { return whole * place / size; }

// What several threads of a group have of it.
class Neighbours {
 public:
  Neighbours(Wires& wires, WiredGroup group)
      : wires_(wires),
        group_(std::move(group)),
        number_(name_hash(group_.name)),
        tree_(tree_place(group_.place, size())) {}

  int place() const { return group_.place; }
  int size() const { return static_cast<int>(group_.members.size()); }
  const TreePlace& tree() const { return tree_; }
  int next() const { return (place() + 1) % size(); }
  int before() const { return (place() + size() - 1) % size(); }

  WireHandle send(int to, const at::Tensor& data, int32_t tag = kTogether) const {
    return wires_.send({group_.members[to], number_, tag}, data);
  }
  WireHandle receive(int from, const at::Tensor& room, int32_t tag = kTogether) const {
    return wires_.receive({group_.members[from], number_, tag}, room);
  }
  void wait(const WireHandle& message, Deadline deadline) const {
    if (const Status status = wires_.wait(message, deadline); !status.ok())
      throw std::runtime_error(status.message());
  }
  bool is_done(const WireHandle& message) const { return wires_.is_done(message); }
  void give_up(const WireHandle& message) const { wires_.give_up(message); }

 private:
  Wires& wires_;
  const WiredGroup group_;
  const uint64_t number_;
  const TreePlace tree_;
};

// One collective, on the thread of its group. What fails is thrown.
class Together {
 public:
  Together(const Neighbours& group, Deadline deadline) : group_(group), deadline_(deadline) {}

  void barrier(const at::Tensor& word) const {
    for (const auto& branch : group_.tree().branches) receive(branch.place, word);
    if (group_.tree().parent >= 0) {
      send(group_.tree().parent, word);
      receive(group_.tree().parent, word);
    }
    to_branches(word);
  }

  // `all` has this place's piece.
  void gather(const at::Tensor& all, int64_t piece) const {
    if (static_cast<int64_t>(all.nbytes()) > kMostGatheredInTree) return gather_in_ring(all, piece);
    const TreePlace& tree = group_.tree();
    std::vector<WireHandle> coming;
    for (const auto& branch : tree.branches)
      coming.push_back(group_.receive(branch.place, part(all, branch.place, branch.end, piece)));
    wait(coming);
    if (tree.parent >= 0) {
      send(tree.parent, part(all, group_.place(), tree.end, piece));
      receive(tree.parent, all);
    }
    to_branches(all);
  }

  void reduce(const at::Tensor& all, const at::Tensor& room, ReduceOp::RedOpType op) const {
    if (room.numel() < all.numel()) return reduce_in_ring(all, room, op);
    for (const auto& branch : group_.tree().branches) {
      receive(branch.place, room);
      reduce_into(all, room, op);
    }
    if (group_.tree().parent >= 0) {
      send(group_.tree().parent, all);
      receive(group_.tree().parent, all);
    }
    to_branches(all);
  }

  // Around the ring: a partial sum comes, this place's part is added, and it goes on. `rooms`: two,
  // that take turns.
  void reduce_scatter(const at::Tensor& out, const at::Tensor& in,
                      const std::vector<at::Tensor>& rooms, ReduceOp::RedOpType op) const {
    const int64_t piece = out.numel();
    const int size = group_.size();
    at::Tensor going = piece_of(in, group_.before(), piece);
    for (int step = 1; step < size; ++step) {
      const at::Tensor& room = rooms[step % 2];
      pass(going, room);
      reduce_into(room, piece_of(in, (group_.place() + 2 * size - step - 1) % size, piece), op);
      going = room;
    }
    std::memcpy(out.mutable_data_ptr(), going.const_data_ptr(), out.nbytes());
  }

  // From the root along the tree, piece by piece.
  void broadcast(const at::Tensor& all, int root) const {
    const TreePlace& tree = group_.tree();
    int from = tree.parent;
    for (const auto& branch : tree.branches)
      if (root >= branch.place && root < branch.end) from = branch.place;
    const int64_t most = std::max<int64_t>(1, kPieceBytes / all.element_size());
    std::vector<WireHandle> going;
    for (int64_t begin = 0; begin < all.numel(); begin += most) {
      const at::Tensor piece = all.narrow(0, begin, std::min(most, all.numel() - begin));
      if (root != group_.place()) receive(from, piece);
      if (tree.parent >= 0 && (from != tree.parent || root == group_.place()))
        going.push_back(group_.send(tree.parent, piece));
      for (const auto& branch : tree.branches)
        if (branch.place != from || root == group_.place())
          going.push_back(group_.send(branch.place, piece));
    }
    wait(going);
  }

  // Parts by place, straight to their receivers; empty ones are not sent.
  void exchange(const std::vector<at::Tensor>& out, const std::vector<at::Tensor>& in) const {
    std::vector<WireHandle> messages;
    const int size = group_.size();
    for (int step = 1; step < size; ++step) {
      const int from = (group_.place() + size - step) % size;
      if (out[from].numel() > 0) messages.push_back(group_.receive(from, out[from]));
    }
    for (int step = 1; step < size; ++step) {
      const int to = (group_.place() + step) % size;
      if (in[to].numel() > 0) messages.push_back(group_.send(to, in[to]));
    }
    const at::Tensor& own = in[group_.place()];
    if (own.numel() > 0)
      std::memcpy(out[group_.place()].mutable_data_ptr(), own.const_data_ptr(), own.nbytes());
    wait(messages);
  }

 private:
  static at::Tensor part(const at::Tensor& all, int begin, int end, int64_t piece) {
    return all.narrow(0, begin * piece, (end - begin) * piece);
  }
  static at::Tensor piece_of(const at::Tensor& all, int place, int64_t piece) {
    return part(all, place, place + 1, piece);
  }
  // The part of a place where they are only nearly even.
  at::Tensor share_of(const at::Tensor& all, int place) const {
    const int64_t begin = part_begin(all.numel(), place, group_.size());
    return all.narrow(0, begin, part_begin(all.numel(), place + 1, group_.size()) - begin);
  }
  void wait(const std::vector<WireHandle>& messages) const {
    try {
      for (const WireHandle& message : messages) group_.wait(message, deadline_);
    } catch (...) {
      for (const WireHandle& message : messages) group_.give_up(message);
      throw;
    }
  }
  void send(int to, const at::Tensor& data) const { group_.wait(group_.send(to, data), deadline_); }
  void receive(int from, const at::Tensor& room) const {
    group_.wait(group_.receive(from, room), deadline_);
  }
  void to_branches(const at::Tensor& data) const {
    std::vector<WireHandle> going;
    for (const auto& branch : group_.tree().branches)
      going.push_back(group_.send(branch.place, data));
    wait(going);
  }
  // One step around the ring.
  void pass(const at::Tensor& data, const at::Tensor& room) const {
    std::vector<WireHandle> both;
    if (room.numel() > 0) both.push_back(group_.receive(group_.before(), room));
    if (data.numel() > 0) both.push_back(group_.send(group_.next(), data));
    wait(both);
  }
  void gather_in_ring(const at::Tensor& all, int64_t piece) const {
    const int size = group_.size();
    for (int step = 0; step + 1 < size; ++step) {
      const int at = group_.place() + size - step;
      pass(piece_of(all, at % size, piece), piece_of(all, (at - 1) % size, piece));
    }
  }
  void reduce_in_ring(const at::Tensor& all, const at::Tensor& room, ReduceOp::RedOpType op) const {
    const int size = group_.size();
    for (int step = 0; step + 1 < size; ++step) {
      const int at = group_.place() + size - step;
      const at::Tensor mine = share_of(all, (at - 1) % size);
      const at::Tensor come = room.narrow(0, 0, mine.numel());
      pass(share_of(all, at % size), come);
      reduce_into(mine, come, op);
    }
    for (int step = 0; step + 1 < size; ++step) {
      const int at = group_.place() + 1 + size - step;
      pass(share_of(all, at % size), share_of(all, (at - 1) % size));
    }
  }

  const Neighbours& group_;
  const Deadline deadline_;
};

class CollectiveWork : public c10d::Work {
 public:
  void end(std::exception_ptr failure) { finish(std::move(failure)); }
};

class MessageWork : public c10d::Work {
 public:
  MessageWork(std::shared_ptr<const Neighbours> group, WireHandle message)
      : group_(std::move(group)), message_(std::move(message)) {}
  bool isCompleted() override { return group_->is_done(message_); }
  bool wait(Milliseconds timeout) override {
    group_->wait(message_, std::chrono::steady_clock::now() + timeout);
    return true;
  }
  void abort() override { group_->give_up(message_); }

 private:
  const std::shared_ptr<const Neighbours> group_;
  const WireHandle message_;
};

// Collectives one after another on a thread of the group, as Gloo's.
class InOrder {
 public:
  ~InOrder() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    come_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  c10::intrusive_ptr<c10d::Work> run(std::function<void()> task) {
    const auto work = c10::make_intrusive<CollectiveWork>();
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) thread_ = std::thread([this] { run_all(); });
    tasks_.emplace_back(work, std::move(task));
    come_.notify_all();
    return work;
  }

 private:
  void run_all() {
    work_beside();
    const at::NoGradGuard no_grad;
    for (std::unique_lock lock(mutex_);;) {
      come_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      auto [work, task] = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      std::exception_ptr failure;
      try {
        task();
      } catch (...) {
        failure = std::current_exception();
      }
      task = nullptr;  // what it holds is let go before anybody goes on
      work->end(failure);
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable come_;
  bool stop_ = false;
  std::deque<std::pair<c10::intrusive_ptr<CollectiveWork>, std::function<void()>>> tasks_;
  std::thread thread_;
};

class WiredBackend : public c10d::Backend {
 public:
  WiredBackend(Wires& wires, const WiredGroup& group)
      : Backend(group.place, static_cast<int>(group.members.size())),
        group_(std::make_shared<const Neighbours>(wires, group)) {}

  const std::string getBackendName() const override { return "wires"; }

  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override {
    return run(options.timeout, [word = at::empty({1}, at::kByte)](const Together& together) {
      together.barrier(word);
    });
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    const auto root = static_cast<int>(options.rootRank);
    return run(options.timeout, [all = flat(tensors.at(0)), root](const Together& together) {
      together.broadcast(all, root);
    });
  }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    const at::Tensor all = flat(tensors.at(0));
    const bool in_tree = static_cast<int64_t>(all.nbytes()) <= kMostReducedInTree;
    const int64_t largest = in_tree ? all.numel() : all.numel() / getSize() + 1;
    return run(options.timeout,
               [all, room = at::empty({largest}, all.options()), op = op_of(options.reduceOp)](
                   const Together& together) { together.reduce(all, room, op); });
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& out, at::Tensor& in,
                                                 const c10d::AllgatherOptions& options) override {
    const at::Tensor all = flat(out), own = flat(in);
    all.narrow(0, getRank() * own.numel(), own.numel()).copy_(own);
    return run(options.timeout, [all, piece = own.numel()](const Together& together) {
      together.gather(all, piece);
    });
  }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor& out, at::Tensor& in, const c10d::ReduceScatterOptions& options) override {
    const at::Tensor to = flat(out), from = flat(in);
    std::vector<at::Tensor> rooms = {at::empty_like(to), at::empty_like(to)};
    return run(options.timeout,
               [to, from, rooms = std::move(rooms), op = op_of(options.reduceOp)](
                   const Together& together) { together.reduce_scatter(to, from, rooms, op); });
  }
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& out, at::Tensor& in,
                                               std::vector<int64_t>& out_rows,
                                               std::vector<int64_t>& in_rows,
                                               const c10d::AllToAllOptions& options) override {
    return run(options.timeout, [to = parts_of(out, out_rows), from = parts_of(in, in_rows)](
                                    const Together& together) { together.exchange(to, from); });
  }
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override {
    return c10::make_intrusive<MessageWork>(group_, group_->send(to, flat(tensors.at(0)), tag));
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from,
                                      int tag) override {
    return c10::make_intrusive<MessageWork>(group_,
                                            group_->receive(from, flat(tensors.at(0)), tag));
  }

 private:
  static ReduceOp::RedOpType op_of(const ReduceOp& op) { return op; }
  template <typename Task>
  c10::intrusive_ptr<c10d::Work> run(Milliseconds timeout, Task task) {
    return in_order_.run([group = group_, timeout, task = std::move(task)] {
      task(Together(*group, std::chrono::steady_clock::now() + timeout));
    });
  }
  // By place; without rows: equal ones.
  std::vector<at::Tensor> parts_of(const at::Tensor& all, const std::vector<int64_t>& rows) const {
    std::vector<at::Tensor> out;
    const at::Tensor held = all.detach();
    int64_t begin = 0;
    for (int place = 0; place < getSize(); ++place) {
      const int64_t count = rows.empty() ? held.size(0) / getSize() : rows[place];
      out.push_back(held.narrow(0, begin, count));
      begin += count;
    }
    return out;
  }

  const std::shared_ptr<const Neighbours> group_;
  InOrder in_order_;
};

}  // namespace

std::unique_ptr<GroupBackend> wired_backend(Wires& wires, WiredGroup group) {
  auto out = std::make_unique<GroupBackend>();
  out->host = c10::make_intrusive<WiredBackend>(wires, group);
  out->gathers = true;
  return out;
}

}  // namespace braid::inline comm
