// What collectives over wires give beside what they give over Gloo's mesh, and how they end where a
// rank dies.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/text.h"
#include "comm/beat.h"
#include "comm/wired_testing.h"

namespace braid::inline comm {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

using Results = std::map<std::string, at::Tensor>;

// Small whole numbers: their sums are exact in every type, in whatever order they are added.
at::Tensor whole_numbers(int64_t rank, int64_t count, at::ScalarType type) {
  return (at::arange(count, at::kLong) + 7 * rank).remainder(21).sub(10).to(type);
}

void add_sums(Communicator& all, int64_t rank, int64_t count, at::ScalarType type, Results* out) {
  const std::pair<Reduce, const char*> kinds[] = {
      {Reduce::kSum, "sum"}, {Reduce::kMax, "max"}, {Reduce::kMin, "min"}};
  for (const auto& [reduce, name] : kinds) {
    at::Tensor& result = (*out)[cat(name, " of ", count)];
    result = whole_numbers(rank, count, type);
    EXPECT_EQ(all.all_reduce(result, reduce, name).wait().message(), "");
  }
  const int64_t piece = count / all.size();
  at::Tensor& part = (*out)[cat("part of ", count)];
  part = at::zeros({piece}, type);
  EXPECT_EQ(all.reduce_scatter(part, whole_numbers(rank, piece * all.size(), type), "part")
                .wait()
                .message(),
            "");
}

void add_moves(Communicator& all, int64_t rank, int64_t count, at::ScalarType type, Results* out) {
  const int64_t n = all.size();
  at::Tensor& gathered = (*out)[cat("gathered of ", count)];
  gathered = at::zeros({n, count}, type);
  EXPECT_EQ(all.all_gather(gathered, whole_numbers(rank, count, type), "gathered").wait().message(),
            "");
  for (const int64_t root : {int64_t{0}, n / 2, n - 1}) {
    at::Tensor& told = (*out)[cat("told by ", root, " of ", count)];
    told = whole_numbers(rank, 3 * count, type);
    EXPECT_EQ(all.broadcast(told, root, "told").wait().message(), "");
  }
  // Unequal rows; some ranks send some others none.
  const auto rows = [](int64_t from, int64_t to) { return (from + 2 * to) % 4; };
  const int64_t width = count / n;
  std::vector<int64_t> out_rows, in_rows;
  for (int64_t other = 0; other < n; ++other) {
    out_rows.push_back(rows(other, rank));
    in_rows.push_back(rows(rank, other));
  }
  const int64_t come = std::accumulate(out_rows.begin(), out_rows.end(), int64_t{0});
  const int64_t go = std::accumulate(in_rows.begin(), in_rows.end(), int64_t{0});
  at::Tensor& exchanged = (*out)[cat("exchanged of ", count)];
  exchanged = at::zeros({come, width}, type);
  const at::Tensor given = whole_numbers(rank, go * width, type).view({go, width});
  EXPECT_EQ(all.all_to_all(exchanged, given, out_rows, in_rows, "rows").wait().message(), "");
  at::Tensor& passed = (*out)[cat("passed of ", count)];
  passed = at::zeros({count}, type);
  Pending going = all.send(whole_numbers(rank, count, type), (rank + 1) % n, 4, "passed");
  EXPECT_EQ(all.receive(passed, (rank + n - 1) % n, 4, "passed").wait().message(), "");
  EXPECT_EQ(going.wait().message(), "");
  EXPECT_EQ(all.barrier("all have come").message(), "");
}

// By rank. Sizes that travel along the tree, and around the ring.
std::vector<Results> results_over(ThreadRanks& ranks, at::ScalarType type) {
  std::vector<Results> out(ranks.size());
  ranks.run([&](Communicator& all, int64_t rank) {
    for (const int64_t count : {ranks.size(), 5000 * ranks.size()}) {
      add_sums(all, rank, count, type, &out[rank]);
      add_moves(all, rank, count, type, &out[rank]);
    }
  });
  return out;
}

class WiredResults : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, WiredResults, testing::Values(9, 12));

TEST_P(WiredResults, AreTheBitsOfAMesh) {
  WiredRanks wired(GetParam());
  MeshRanks mesh(GetParam());
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kLong}) {
    const auto results = results_over(wired, type), expected = results_over(mesh, type);
    for (int64_t rank = 0; rank < wired.size(); ++rank) {
      EXPECT_EQ(results[rank].size(), 20u);
      for (const auto& [name, tensor] : expected[rank])
        EXPECT_TRUE(at::equal(results[rank].at(name), tensor))
            << name << " on rank " << rank << " as " << toString(type);
    }
  }
}

// A sum that rounds depends on the order: of ranks and size alone, here and in every run.
TEST_P(WiredResults, RoundedSumsAreTheSameOnAllRanks) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
    for (const int64_t count : {7, 50000}) {
      std::vector<at::Tensor> sums;
      for (int run = 0; run < 2; ++run) {
        WiredRanks wired(GetParam());
        sums.resize(sums.size() + GetParam());
        at::Tensor* const of_run = sums.data() + run * GetParam();
        wired.run([&](Communicator& all, int64_t rank) {
          of_run[rank] = uneven(rank, count).to(type);
          EXPECT_EQ(all.all_reduce(of_run[rank], Reduce::kSum, "sum").wait().message(), "");
        });
      }
      for (const at::Tensor& sum : sums) EXPECT_TRUE(at::equal(sum, sums.front()));
    }
}

// How members of a group reach each other in a collective.
enum class Way { kTree, kRing, kStraight };

std::set<int64_t> neighbours(Way way, int64_t of, int64_t size) {
  std::set<int64_t> out;
  if (way == Way::kRing) return {(of + 1) % size, (of + size - 1) % size};
  if (way == Way::kTree) {
    const TreePlace tree = tree_place(static_cast<int>(of), static_cast<int>(size));
    if (tree.parent >= 0) out.insert(tree.parent);
    for (const auto& branch : tree.branches) out.insert(branch.place);
    return out;
  }
  for (int64_t rank = 0; rank < size; ++rank)
    if (rank != of) out.insert(rank);
  return out;
}

// One kind of collective, of which a rank dies before it has done its part.
struct Broken {
  const char* name;
  Way way;
  bool begun;  // by the rank that dies; else it dies before
  std::function<Status(Communicator& all)> act;
};

// Who dies, and a rank that comes after that: the first needs what it brings, in tree and ring.
struct Death {
  int64_t dies, late;
};
constexpr Death kAmongOthers{3, 4}, kFirst{0, 1};
constexpr double kBrokenDeadline_s = 2;

const std::vector<Broken>& broken_collectives() {
  static const auto reduced = [](int64_t each) {
    return [each](Communicator& all) {
      return all.all_reduce(at::zeros({each * all.size()}), Reduce::kSum, "x").wait();
    };
  };
  static const auto gathered = [](int64_t each) {
    return [each](Communicator& all) {
      return all.all_gather(at::zeros({each * all.size()}), at::zeros({each}), "x").wait();
    };
  };
  static const std::vector<Broken> out = {
      {"barrier", Way::kTree, true, [](Communicator& all) { return all.barrier("x"); }},
      {"small sum", Way::kTree, true, reduced(1)},
      {"large sum", Way::kRing, true, reduced(5000)},
      {"small gather", Way::kTree, true, gathered(1)},
      {"large gather", Way::kRing, true, gathered(40000)},
      {"part of a sum", Way::kRing, true,
       [](Communicator& all) {
         return all.reduce_scatter(at::zeros({5000}), at::zeros({5000 * all.size()}), "x").wait();
       }},
      {"told", Way::kTree, false,
       [](Communicator& all) {
         return all.broadcast(at::zeros({5000}), kAmongOthers.dies, "x").wait();
       }},
      {"rows", Way::kStraight, false,
       [](Communicator& all) {
         const std::vector<int64_t> rows(all.size(), 5000);
         const at::Tensor in = at::zeros({5000 * all.size()}), out = at::zeros_like(in);
         return all.all_to_all(out, in, rows, rows, "x").wait();
       }},
  };
  return out;
}

// Until all that it has to do with have connected to it.
void await_peers(const Wires& wires, size_t peers) {
  for (const auto limit = deadline_in(60); std::chrono::steady_clock::now() < limit;) {
    if (wires.peers() >= static_cast<int64_t>(peers)) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // for them to wait for it
}

// How the collective ends on each rank.
std::vector<Status> ends_of(const Broken& broken, const Death& death, WiredRanks& ranks) {
  std::vector<Status> ends(ranks.size());
  std::atomic<bool> died = false;
  std::set<int64_t> peers = neighbours(Way::kTree, death.dies, ranks.size());
  peers.merge(neighbours(broken.way, death.dies, ranks.size()));
  ranks.run([&](Communicator& all, int64_t rank) {
    EXPECT_TRUE(all.barrier("connected").ok());
    if (rank == death.dies) {
      std::thread acts([&] {
        if (broken.begun) ends[rank] = broken.act(all);
      });
      await_peers(ranks.wires(rank), peers.size());
      ranks.wires(rank).close();
      died = true;
      died.notify_all();
      acts.join();
      return;
    }
    if (rank == death.late) died.wait(false);
    ends[rank] = broken.act(all);
  });
  return ends;
}

// Who has to do with the rank that dies says so itself; where the others wait is known from the
// store alone.
void expect_named(const Broken& broken, const Death& death, int64_t size) {
  WiredRanks ranks(size, kBrokenDeadline_s);
  for (int64_t rank = 0; rank < size; ++rank) {
    Beat beat{1, 1, RankWait{{death.dies}, 1}, "step 3, waits"};
    if (rank == death.dies) beat.waits.reset(), beat.position = "step 3, reward";
    ASSERT_TRUE(ranks.store().set(beat_key(rank), beat_text(beat)).ok());
  }
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<Status> ends = ends_of(broken, death, ranks);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(took.count(), kBrokenDeadline_s + 20);
  const std::set<int64_t> near = neighbours(broken.way, death.dies, size);
  const std::string dead = cat("rank ", death.dies);
  for (int64_t rank = 0; rank < size; ++rank) {
    if (rank == death.dies) continue;
    const std::string& said = ends[rank].message();
    EXPECT_THAT(ends[rank].code(), AnyOf(Code::kUnavailable, Code::kDeadline)) << broken.name;
    EXPECT_THAT(said, HasSubstr(cat("; ", dead, ": step 3, reward"))) << broken.name;
    if (near.count(rank) == 0) continue;
    EXPECT_THAT(said,
                AnyOf(HasSubstr(cat(dead, " has closed its connection")),
                      HasSubstr(cat(dead, " is gone")), HasSubstr(cat(dead, " cannot be reached"))))
        << broken.name << " on rank " << rank;
  }
}

// All at once: most of the time is that of the deadline.
TEST_P(WiredResults, ARankThatDiesWithinACollectiveIsNamedByItsNeighbours) {
  std::vector<std::thread> threads;
  const auto begin = [&](const Broken& broken, const Death& death) {
    threads.emplace_back(expect_named, std::cref(broken), std::cref(death), GetParam());
  };
  for (const Broken& broken : broken_collectives()) begin(broken, kAmongOthers);
  for (const char* name : {"barrier", "large sum"})
    for (const Broken& broken : broken_collectives())
      if (broken.name == std::string(name)) begin(broken, kFirst);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace braid::inline comm
