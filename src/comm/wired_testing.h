// Ranks of one process, each on a thread, in one group. Only tests include this.
#pragma once

#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "comm/wired_backend.h"

namespace braid::inline comm {

class ThreadRanks {
 public:
  void run(const std::function<void(Communicator& all, int64_t rank)>& body) {
    on_threads([&](int64_t rank) { body(*groups_[rank], rank); });
  }
  int64_t size() const { return std::ssize(groups_); }
  Store& store() { return *server_; }

 protected:
  explicit ThreadRanks(int64_t ranks) : boards_(ranks), members_(ranks), groups_(ranks) {
    auto store = Store::serve_local("threads");
    EXPECT_TRUE(store.ok());
    server_ = std::move(*store);
    std::iota(members_.begin(), members_.end(), 0);
  }
  void add(int64_t rank, double deadline_s, std::unique_ptr<GroupBackend> backend) {
    groups_[rank] = std::make_unique<Communicator>(
        "all", members_, CommunicatorContext{rank, deadline_s, &boards_[rank], server_.get()},
        std::move(backend));
  }
  void on_threads(const std::function<void(int64_t rank)>& body) const {
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < size(); ++rank) threads.emplace_back([&, rank] { body(rank); });
    for (std::thread& thread : threads) thread.join();
  }
  const std::vector<int64_t>& members() const { return members_; }
  const std::shared_ptr<Store>& shared_store() const { return server_; }
  void end_groups() { groups_.clear(); }  // before what they are over

  ~ThreadRanks() = default;

 private:
  std::shared_ptr<Store> server_;
  std::deque<PositionBoard> boards_;
  std::vector<int64_t> members_;
  std::vector<std::unique_ptr<Communicator>> groups_;
};

// Over wires, as groups of many ranks are.
class WiredRanks : public ThreadRanks {
 public:
  explicit WiredRanks(int64_t ranks, double deadline_s = 60, double files_s = 60)
      : ThreadRanks(ranks) {
    for (int64_t rank = 0; rank < ranks; ++rank) {
      Membership membership;
      membership.global_rank = rank, membership.world_size = membership.local_size = ranks;
      wires_.push_back(*Wires::open(store(), membership, files_s));
      add(rank, deadline_s,
          wired_backend(*wires_.back(), {"all", members(), static_cast<int>(rank)}));
    }
    for (const auto& wires : wires_) wires->meet(shared_store());
  }
  ~WiredRanks() {
    for (const auto& wires : wires_) wires->close();
    end_groups();
  }

  Wires& wires(int64_t rank) { return *wires_[rank]; }
  int64_t most_peers() const {
    int64_t most = 0;
    for (const auto& wires : wires_) most = std::max(most, wires->peers());
    return most;
  }

 private:
  std::vector<std::unique_ptr<Wires>> wires_;
};

// Over Gloo, as groups of few ranks are.
class MeshRanks : public ThreadRanks {
 public:
  explicit MeshRanks(int64_t ranks) : ThreadRanks(ranks) {
    on_threads([&](int64_t rank) {
      const auto own = store().duplicate();
      ASSERT_TRUE(own.ok());
      auto backend = connect_gloo(
          **own, {.name = "all", .place = static_cast<int>(rank), .size = static_cast<int>(ranks)});
      ASSERT_TRUE(backend.ok()) << backend.status().message();
      add(rank, 60, std::move(*backend));
    });
  }
};

// Numbers whose sum depends on the order in which they are added.
inline at::Tensor uneven(int64_t rank, int64_t count) {
  return (at::arange(count, at::kFloat) + 1.0) / static_cast<double>(3 * rank + 7);
}

}  // namespace braid::inline comm
