#include "program/expand.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "plan/test_problem.h"
#include "pricing/own_engine.h"
#include "program/list_mutants.h"
#include "program/verify_ops.h"

namespace braid::inline program {
namespace {

using ::testing::ElementsAre;

std::vector<PartitionSample> samples_of(int64_t groups, int64_t each) {
  std::vector<PartitionSample> out;
  for (int64_t i = 0; i < groups * each; ++i)
    out.push_back({SampleId{100 + i}, GroupId{i / each}, 3 + i / each, 5 + i * 7 % 11, true});
  return out;
}

std::multiset<int32_t> rows_of(const MiniBatch& batch) {
  std::multiset<int32_t> out;
  for (const auto& rank : batch.micro_batches)
    for (const auto& rows : rank) out.insert(rows.begin(), rows.end());
  return out;
}

TEST(PartitionTest, MembershipIsTheSameInEveryLayout) {
  const auto samples = samples_of(6, 4);
  PartitionOptions options;
  options.trains = true, options.minibatches = 5, options.epochs = 2, options.seed = 7;
  const auto members = partition_minibatches(samples, options);
  ASSERT_EQ(members.size(), 10);
  EXPECT_NE(members[0], members[5]);
  for (const int dp : {1, 2, 3, 7})
    for (const int64_t micro_tokens : {0, 20}) {
      Strategy s;
      s.dp = dp, s.micro_batches = 2, s.micro_tokens = micro_tokens;
      const Partition out = partition_samples(samples, s, options);
      for (size_t i = 0; i < members.size(); ++i) {
        EXPECT_EQ(out.minibatches[i].rows, members[i]);
        EXPECT_EQ(rows_of(out.minibatches[i]),
                  std::multiset<int32_t>(members[i].begin(), members[i].end()));
      }
    }
}

TEST(PartitionTest, SharesDifferByOneAndDropsAreLeftOut) {
  auto samples = samples_of(11, 1);
  samples[4].kept = false;
  Strategy s;
  s.dp = 4;
  const Partition out = partition_samples(samples, s, {});
  for (const SampleRows& rows : out.owned) {
    EXPECT_TRUE(rows.size() == 2 || rows.size() == 3);
    EXPECT_EQ(std::count(rows.begin(), rows.end(), 4), 0);
  }
  EXPECT_EQ(out.minibatches[0].totals.samples, 10);
}

TEST(PartitionTest, LargestFirstToTheBinThatHoldsLeast) {
  EXPECT_THAT(balance_load({5, 1, 4, 2}, {2, 2}),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(balance_load({9, 1, 1}, {1, 2}), ElementsAre(ElementsAre(0), ElementsAre(1, 2)));
  EXPECT_THAT(balance_load({}, {0}), ElementsAre(ElementsAre()));
}

TEST(PartitionTest, MicroBatchesByNumberOrBudget) {
  Strategy s;
  s.micro_batches = 2, s.in_order = true;
  const auto cut = [&](const std::vector<int64_t>& tokens) {
    std::vector<PartitionSample> samples;
    for (const int64_t count : tokens) samples.push_back({SampleId{}, GroupId{}, count, 0});
    return cut_shares({{0, 1, 2, 3}}, samples, s, {})[0];
  };
  EXPECT_THAT(cut({5, 4, 1, 2}), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  s.in_order = false;
  EXPECT_THAT(cut({5, 4, 1, 2}), ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
  s.micro_tokens = 6;
  EXPECT_THAT(cut({5, 4, 1, 20}), ElementsAre(ElementsAre(0), ElementsAre(1, 2), ElementsAre(3)));
}

// One process: units in the permutation's order, cut by the token budget.
TEST(PartitionTest, OneRankKeepsTheOrderOfThePermutation) {
  PartitionOptions options;
  options.trains = true, options.minibatches = 2, options.seed = 3;
  Strategy s;
  s.micro_tokens = 30;
  for (const MiniBatch& batch : partition_samples(samples_of(6, 2), s, options).minibatches) {
    SampleRows joined;
    for (const SampleRows& rows : batch.micro_batches[0])
      joined.insert(joined.end(), rows.begin(), rows.end());
    EXPECT_EQ(joined, batch.rows);
  }
}

TEST(PartitionTest, WholeGroupsStayTogether) {
  const auto samples = samples_of(7, 2);
  PartitionOptions options;
  options.trains = true, options.minibatches = 2, options.whole_groups = true;
  Strategy s;
  s.dp = 3, s.micro_tokens = 1;
  for (const MiniBatch& batch : partition_samples(samples, s, options).minibatches)
    for (const auto& rank : batch.micro_batches)
      for (const SampleRows& rows : rank) {
        ASSERT_EQ(rows.size(), 2);
        EXPECT_EQ(rows[0] / 2, rows[1] / 2);
      }
}

TEST(PartitionTest, RanksThatMeetInPassesHaveAsManyMicroBatches) {
  Strategy s;
  s.dp = 3, s.micro_tokens = 12;
  PartitionOptions options;
  options.trains = true;
  for (const int stage : {2, 3}) {
    s.zero_stage = stage;
    const Partition out = partition_samples(samples_of(7, 1), s, options);
    const auto& ranks = out.minibatches[0].micro_batches;
    EXPECT_EQ(ranks[0].size(), ranks[1].size());
    EXPECT_EQ(ranks[0].size(), ranks[2].size());
  }
}

TEST(PartitionTest, ListsOfUnequalPassesThatMeetAreRejected) {
  CallPlacement where;
  where.mesh.devices = {DeviceId{0}, DeviceId{1}};
  where.copy = 0;
  where.strategy.dp = 2;
  ModelShape model;
  model.layers = 2, model.hidden = 4;
  model.kinds = {{"query", 16, 2, 0, 2, false, false}};
  Partition unequal;
  unequal.minibatches.push_back({0, 0, {0, 1, 2}, {3, 3, 3}, {{{0}, {1}}, {{2}}}, {{4, 4}, {4}}});
  const CallFrame frame{CallId{0}, CallKind::kTrainStep, &where, &model};
  for (const int stage : {1, 2, 3}) {
    where.strategy.zero_stage = stage;
    const std::vector<Expansion> ranks = {expand(frame, DeviceId{0}, unequal),
                                          expand(frame, DeviceId{1}, unequal)};
    EXPECT_EQ(verify_ops(frame, ranks, unequal).ok(), stage == 1) << "zero " << stage;
  }
  where.strategy.zero_stage = 0, where.strategy.ep = 2;
  model.kinds.push_back({"experts", 192, 16, 0, 2, false, false, true});
  model.routes = 2;
  const std::vector<Expansion> ranks = {expand(frame, DeviceId{0}, unequal),
                                        expand(frame, DeviceId{1}, unequal)};
  const Status experts = verify_ops(frame, ranks, unequal);
  EXPECT_THAT(experts.message(), testing::HasSubstr("experts group"));
}

template <typename Which>
size_t erase_ops_if(Expansion* e, const Which& which) {
  size_t erased = 0;
  for (size_t i = e->ops.size(); i-- > 0;)
    if (which(e->ops[i])) erase_op(e, i), ++erased;
  return erased;
}

// Messages of each ordered pair and channel as their receiver and their sender list them.
using Cuts = std::vector<std::pair<int32_t, int32_t>>;  // cut, micro-batch
using Channels = std::map<std::tuple<DeviceId, DeviceId, Channel>, Cuts>;

struct BodyCase {
  int dp, tp, pp, interleave, zero;
  bool sequence_parallel;
  PipelineOrder schedule;
  int cp = 1, ep = 1, expert_tp = 0, zero_ranks = 0;
};

class ExpandTest : public ::testing::TestWithParam<BodyCase> {
 protected:
  ExpandTest() {
    const BodyCase& c = GetParam();
    Strategy& s = where_.strategy;
    s.dp = c.dp, s.tp = c.tp, s.pp = c.pp, s.interleave = c.interleave, s.zero_stage = c.zero;
    s.sequence_parallel = c.sequence_parallel, s.schedule = c.schedule;
    s.cp = c.cp, s.ep = c.ep, s.expert_tp = c.expert_tp, s.zero_ranks = c.zero_ranks;
    s.micro_tokens = 24;
    for (int i = 0; i < c.dp * c.cp * c.tp * c.pp; ++i) where_.mesh.devices.push_back(DeviceId{i});
    where_.copy = 0;
    model_.layers = 8, model_.hidden = 16;
    model_.kinds = {{"embedding", 64, 8, 0, 0, true, true},
                    {"query", 256, 4, 0, 8, false, false},
                    {"key_value", 128, 2, 0, 8, false, false},
                    {"norms", 32, 1, 0, 8, false, false}};
    model_.cached = 8;
    if (c.ep > 1 || c.expert_tp > 0) {
      model_.kinds.push_back({"experts", 192, 16, 2, 8, false, false, true});
      model_.routes = 2;
    }
    options_.trains = true, options_.minibatches = 2;
    partition_ = partition_samples(samples_of(9, 2), s, options_);
  }
  std::vector<Expansion> all(CallKind kind) const {
    std::vector<Expansion> out;
    for (const DeviceId rank : where_.mesh.devices)
      out.push_back(expand({CallId{0}, kind, &where_, &model_}, rank, partition_));
    return out;
  }

  CallPlacement where_;
  ModelShape model_;
  PartitionOptions options_;
  Partition partition_;
};

TEST_P(ExpandTest, TokensTimesLayersAreTheSameInEveryLayout) {
  double forward = 0, backward = 0;
  int64_t tokens = 0;
  for (const Expansion& e : all(CallKind::kTrainStep))
    for (const Op& op : e.ops) {
      if (op.kind != OpKind::kForward && op.kind != OpKind::kBackward) continue;
      const auto work = static_cast<double>(
          partition_.minibatches[op.minibatch].tokens[e.at.dp_rank][op.micro_batch] *
          e.bodies[op.body].layers.size());
      (op.kind == OpKind::kForward ? forward : backward) +=
          work / (where_.strategy.tp * where_.strategy.cp);
    }
  for (const PartitionSample& sample : samples_of(9, 2)) tokens += sample.prompt + sample.response;
  EXPECT_EQ(forward, static_cast<double>(tokens * model_.layers));
  EXPECT_EQ(backward, forward);
}

TEST_P(ExpandTest, MessagesAreReceivedInTheOrderOfTheirChannel) {
  Channels sent, received;
  for (const Expansion& e : all(CallKind::kTrainStep))
    for (const Op& op : e.ops) {
      if (op.channel == Channel::kNone) continue;
      const bool sends = op.kind == OpKind::kSend;
      (sends ? sent : received)[{sends ? e.rank : op.peer, sends ? op.peer : e.rank, op.channel}]
          .push_back({op.cut, op.micro_batch});
    }
  EXPECT_EQ(sent, received);
}

TEST_P(ExpandTest, EveryCollectiveIsListedAlikeByItsGroup) {
  std::map<std::pair<GroupKind, std::vector<DeviceId>>, std::vector<std::vector<OpKind>>> lists;
  for (const Expansion& e : all(CallKind::kTrainStep)) {
    std::map<int32_t, std::vector<OpKind>> mine;
    for (const Op& op : e.ops)
      if (op.group >= 0) mine[op.group].push_back(op.kind);
    for (const auto& [group, kinds] : mine)
      lists[{e.groups[group].kind, e.groups[group].members}].push_back(kinds);
  }
  for (const auto& [group, members] : lists) {
    EXPECT_EQ(members.size(), group.second.size());
    for (const auto& list : members) EXPECT_EQ(list, members[0]);
  }
}

// Whoever is in a group lists it as its other members do, and ops have no others.
TEST_P(ExpandTest, GroupsOfARankAreThoseThatItsMembersList) {
  const CallFrame frame{CallId{0}, CallKind::kTrainStep, &where_, &model_};
  std::map<DeviceId, std::vector<OpGroup>> listed;
  for (const DeviceId rank : where_.mesh.devices)
    listed[rank] = groups_at(frame, position_in(where_, rank));
  for (const auto& [rank, groups] : listed)
    for (size_t i = 0; i < groups.size(); ++i) {
      EXPECT_TRUE(i == 0 || groups[i - 1].kind < groups[i].kind);
      EXPECT_THAT(groups[i].members, testing::Contains(rank));
      for (const DeviceId member : groups[i].members)
        EXPECT_THAT(listed[member], testing::Contains(groups[i]));
    }
  for (const Expansion& e : all(CallKind::kTrainStep))
    for (const OpGroup& group : e.groups)
      EXPECT_TRUE(group.members.size() == 1 ||
                  testing::Value(listed[e.rank], testing::Contains(group)));
}

// Of a job 256 times as large a rank lists as many groups, and none of other ranks.
TEST(GroupsAtTest, ARankListsItsOwnAlone) {
  ModelShape model;
  model.kinds = {{"query", 256, 4, 0, 8, false, false}};
  const auto listed = [&](int dp) {
    CallPlacement where;
    where.strategy.dp = dp, where.strategy.tp = 2, where.strategy.pp = 2;
    for (int i = 0; i < 4 * dp; ++i) where.mesh.devices.push_back(DeviceId{i});
    std::map<GroupKind, size_t> out;
    for (const OpGroup& group :
         groups_at({CallId{0}, CallKind::kTrainStep, &where, &model}, {1, 1, 1, 0}))
      out[group.kind] += group.members.size();
    return out;
  };
  for (const int dp : {4, 1024}) {
    const auto count = static_cast<size_t>(dp);
    EXPECT_THAT(
        listed(dp),
        ElementsAre(testing::Pair(GroupKind::kTensor, 2), testing::Pair(GroupKind::kData, count),
                    testing::Pair(GroupKind::kEnds, 2), testing::Pair(GroupKind::kReplica, 4),
                    testing::Pair(GroupKind::kCall, 4 * count)));
  }
}

// Which ranks' gradients are in each element that a rank holds, as bits.
class Contributions {
 public:
  using Element = std::tuple<int32_t, int64_t, int64_t>;  // kind, layer, element
  using Elements = std::map<Element, uint64_t>;

  // Each rank begins with its own, of what it holds before ZeRO shards it.
  Contributions(const std::vector<Expansion>& ranks, const CallPlacement& where,
                const ModelShape& model)
      : ranks_(ranks), held_(ranks.size()) {
    ParamLayout whole = param_layout(where.mesh, where.strategy);
    whole.sharded = false;
    for (size_t r = 0; r < ranks.size(); ++r) {
      const GridPosition at = grid_position(layout_grid(whole), r);
      for (size_t i = 0; i < model.kinds.size(); ++i)
        for (const Interval& layers : held_layers(model.kinds[i], whole, model.layers, at.stage))
          for_each({0, TensorState::kGradients, static_cast<int32_t>(i), layers,
                    held_elements(model.kinds[i], whole, at)},
                   [&](const Element& e) { held_[r][e] = uint64_t{1} << r; });
    }
  }

  template <typename Do>
  static void for_each(const TensorSlice& slice, const Do& what) {
    for (int64_t layer = slice.layers.begin; layer < slice.layers.end; ++layer)
      for (int64_t i = slice.elements.begin; i < slice.elements.end; ++i)
        what(Element{slice.item, layer, i});
  }

  // What every rank lists for its groups of a kind in the first mini-batch.
  void reduce(GroupKind kind) {
    std::vector<Elements> after = held_;
    for (size_t r = 0; r < ranks_.size(); ++r)
      for (const Op& op : ranks_[r].ops) {
        if (op.minibatch != 0 || op.group < 0 || op.what < 0 || op.kind == OpKind::kNorm) continue;
        const OpGroup& group = ranks_[r].groups[op.group];
        if (group.kind != kind || op.kind == OpKind::kAllGather) continue;
        for (const TensorSlice& slice : ranks_[r].tensors[op.what])
          for_each(slice, [&](const Element& e) { after[r][e] = joined(group, e); });
      }
    held_ = std::move(after);
  }

  // Reductions inside the backward: ZeRO-2 and 3.
  void reduce_inside(const std::vector<TensorKind>& kinds) {
    std::vector<Elements> after = held_;
    for (size_t r = 0; r < ranks_.size(); ++r)
      for (const InsideOp& inside : ranks_[r].bodies[0].backward) {
        const OpGroup& group = ranks_[r].groups[inside.group];
        if (inside.kind != OpKind::kReduceScatter || !among_copies(group.kind)) continue;
        const bool experts = group.kind >= GroupKind::kExpertData;
        const bool own_grid =
            std::any_of(ranks_[r].groups.begin(), ranks_[r].groups.end(), [](const OpGroup& other) {
              return other.kind >= GroupKind::kExpertData && among_copies(other.kind);
            });
        for (auto& [element, ranks] : after[r])
          if (!own_grid || kinds[std::get<0>(element)].routed == experts)
            ranks = joined(group, element);
      }
    held_ = std::move(after);
  }

  uint64_t of(size_t rank, const Element& element) const { return held_[rank].at(element); }
  uint64_t holders(const Element& element) const {
    uint64_t out = 0;
    for (size_t r = 0; r < held_.size(); ++r)
      if (held_[r].count(element) > 0) out |= uint64_t{1} << r;
    return out;
  }

 private:
  uint64_t joined(const OpGroup& group, const Element& element) const {
    uint64_t out = 0;
    for (const DeviceId member : group.members) {
      const auto found = held_[member.value].find(element);
      if (found != held_[member.value].end()) out |= found->second;
    }
    return out;
  }

  const std::vector<Expansion>& ranks_;
  std::vector<Elements> held_;
};

// What an update reads is the sum over exactly the ranks that computed a part of it.
TEST_P(ExpandTest, GradientsAreReducedOverTheirReplicas) {
  const std::vector<Expansion> ranks = all(CallKind::kTrainStep);
  Contributions sums(ranks, where_, model_);
  const Contributions alone = sums;
  if (where_.strategy.zero_stage >= 2) sums.reduce_inside(model_.kinds);
  for (int kind = 0; kind <= static_cast<int>(GroupKind::kCall); ++kind)
    sums.reduce(static_cast<GroupKind>(kind));
  for (size_t r = 0; r < ranks.size(); ++r)
    for (const Op& op : ranks[r].ops) {
      if (op.kind != OpKind::kUpdate || op.minibatch != 0) continue;
      for (const TensorSlice& slice : ranks[r].tensors[op.what]) {
        if (slice.state != TensorState::kMain) continue;
        Contributions::for_each(slice, [&](const Contributions::Element& e) {
          uint64_t expected = alone.holders(e);
          if (model_.kinds[slice.item].units == 1 && !where_.strategy.sequence_parallel)
            for (const Expansion& other : ranks)  // each tensor-parallel rank has the whole
              if (other.at.tp_rank != ranks[r].at.tp_rank)
                expected &= ~(uint64_t{1} << other.rank.value);
          ASSERT_EQ(sums.of(r, e), expected)
              << model_.kinds[slice.item].name << " of rank " << r << ", layer " << std::get<1>(e);
        });
      }
    }
}

TEST_P(ExpandTest, ListsObeyTheRules) {
  const CallFrame frame{CallId{0}, CallKind::kTrainStep, &where_, &model_};
  const Status trains = verify_ops(frame, all(CallKind::kTrainStep), partition_);
  EXPECT_TRUE(trains.ok()) << trains.message();
}

// Which ops there are depends on the shape of a partition alone, so that lists of a shape that was
// checked once need no second look: with other lengths they obey the rules as well.
TEST_P(ExpandTest, PartitionsOfOneShapeHaveTheSameOps) {
  const CallFrame frame{CallId{0}, CallKind::kInfer, &where_, &model_};
  const DeviceId rank = where_.mesh.devices.front();
  VerifiedShapes verified;
  std::map<PartitionShape, std::vector<OpKind>> kinds;
  for (int64_t trial = 0; trial < 12; ++trial) {
    auto samples = samples_of(9, 2);
    for (size_t i = 0; i < samples.size(); ++i)
      samples[i].response = 1 + static_cast<int64_t>(i * 5 + trial * trial) % (9 + trial);
    partition_ = partition_samples(samples, where_.strategy, {});
    EXPECT_EQ(verify_ops(frame, all(CallKind::kInfer), partition_).message(), "");
    const auto own = verified_ops(frame, rank, partition_, &verified);
    ASSERT_TRUE(own.ok()) << own.status().message();
    EXPECT_EQ(*own, expand(frame, rank, partition_));
    std::vector<OpKind> ops;
    for (const Op& op : own->ops) ops.push_back(op.kind);
    EXPECT_EQ(kinds.emplace(shape_of(partition_), ops).first->second, ops);
  }
  EXPECT_EQ(verified.size(), kinds.size());
}

TEST_P(ExpandTest, ListsOfInferenceObeyTheRules) {
  partition_ = partition_samples(samples_of(9, 2), where_.strategy, {});
  const CallFrame frame{CallId{0}, CallKind::kInfer, &where_, &model_};
  const std::vector<Expansion> ranks = all(CallKind::kInfer);
  const Status status = verify_ops(frame, ranks, partition_);
  EXPECT_TRUE(status.ok()) << status.message();
  for (size_t i = 0; i < ranks[0].ops.size(); ++i) {
    std::vector<Expansion> without = ranks;
    erase_op(&without[0], i);
    EXPECT_FALSE(verify_ops(frame, without, partition_).ok()) << op_kind_name(ranks[0].ops[i].kind);
  }
}

// Also where every rank has the fault.
TEST_P(ExpandTest, InferenceEndsWithOneAgreementOfThoseWhoEndAlike) {
  partition_ = partition_samples(samples_of(9, 2), where_.strategy, {});
  for (const bool early : {false, true}) {
    CallFrame frame{CallId{0}, CallKind::kInfer, &where_, &model_};
    frame.early = early;
    const auto over = ends_alike(frame);
    std::vector<Expansion> ranks;
    for (const DeviceId rank : where_.mesh.devices)
      ranks.push_back(expand(frame, rank, partition_));
    EXPECT_EQ(verify_ops(frame, ranks, partition_).message(), "");
    std::vector<Expansion> without = ranks, twice = ranks, first = ranks;
    for (size_t r = 0; r < ranks.size(); ++r) {
      const std::vector<Op>& ops = ranks[r].ops;
      const auto agreements = std::count_if(ops.begin(), ops.end(),
                                            [](const Op& op) { return op.kind == OpKind::kAgree; });
      ASSERT_EQ(agreements, over.has_value() ? 1 : 0);
      if (!over) continue;
      EXPECT_EQ(ranks[r].groups[ops.back().group].kind, *over);
      erase_op(&without[r], ops.size() - 1);
      twice[r].ops.push_back(ops.back());
      twice[r].ops.back().after[0] = static_cast<int32_t>(ops.size()) - 1;
      std::rotate(first[r].ops.begin(), first[r].ops.end() - 1, first[r].ops.end());
    }
    if (!over) continue;
    for (const auto* changed : {&without, &twice, &first})
      EXPECT_FALSE(verify_ops(frame, *changed, partition_).ok());
  }
}

TEST_P(ExpandTest, DeletingAnyOpIsRejected) {
  const CallFrame frame{CallId{0}, CallKind::kTrainStep, &where_, &model_};
  const std::vector<Expansion> ranks = all(CallKind::kTrainStep);
  for (const size_t r : {size_t{0}, ranks.size() / 2, ranks.size() - 1})
    for (size_t i = 0; i < ranks[r].ops.size(); ++i) {
      std::vector<Expansion> without = ranks;
      erase_op(&without[r], i);
      EXPECT_FALSE(verify_ops(frame, without, partition_).ok())
          << "rank " << r << " without op " << i << " " << op_kind_name(ranks[r].ops[i].kind);
    }
}

// Also where every rank leaves it out.
TEST_P(ExpandTest, DeletingAKindOfOpIsRejected) {
  const CallFrame frame{CallId{0}, CallKind::kTrainStep, &where_, &model_};
  const std::vector<Expansion> ranks = all(CallKind::kTrainStep);
  std::set<std::pair<OpKind, GroupKind>> kinds;
  for (const Expansion& e : ranks)
    for (const Op& op : e.ops)
      kinds.insert({op.kind, op.group < 0 ? GroupKind::kCall : e.groups[op.group].kind});
  for (const auto& [kind, over] : kinds) {
    std::vector<Expansion> without = ranks;
    for (Expansion& e : without)
      erase_ops_if(&e, [&, kind = kind, over = over](const Op& op) {
        return op.kind == kind && (op.group < 0 || e.groups[op.group].kind == over);
      });
    EXPECT_FALSE(verify_ops(frame, without, partition_).ok()) << op_kind_name(kind);
  }
}

// What is done inside of passes among ranks of equal parameters: of each part of the model.
TEST_P(ExpandTest, DeletingAKindOfOpInsideABodyIsRejected) {
  const CallFrame frame{CallId{0}, CallKind::kTrainStep, &where_, &model_};
  const std::vector<Expansion> ranks = all(CallKind::kTrainStep);
  for (size_t body = 0; body < ranks[0].bodies.size(); ++body)
    for (const auto inside : {&OpBody::forward, &OpBody::backward})
      for (const OpKind kind : {OpKind::kAllGather, OpKind::kReduceScatter}) {
        std::vector<Expansion> without = ranks;
        size_t left_out = 0;
        for (Expansion& e : without)
          left_out += std::erase_if(e.bodies[body].*inside, [&](const InsideOp& op) {
            return op.kind == kind && among_copies(e.groups[op.group].kind);
          });
        EXPECT_EQ(verify_ops(frame, without, partition_).ok(), left_out == 0)
            << op_kind_name(kind) << " of body " << body;
      }
}

TEST_P(ExpandTest, ChangedOpsAreRejected) {
  const CallFrame frame{CallId{0}, CallKind::kTrainStep, &where_, &model_};
  const std::vector<Expansion> ranks = all(CallKind::kTrainStep);
  const std::vector<void (*)(Op&)> changes = {
      [](Op& op) { op.version += 1; }, [](Op& op) { op.holds = op.holds == 0 ? 1 : 0; },
      [](Op& op) { op.bytes += op.channel == Channel::kNone ? 0 : 1; },
      [](Op& op) { op.run = op.run == OpKind::kPasses ? OpKind::kReduce : OpKind::kPasses; },
      [](Op& op) { op.run = OpKind::kCall; }};
  for (size_t c = 0; c < changes.size(); ++c)
    for (size_t i = 0; i < ranks[0].ops.size(); ++i) {
      std::vector<Expansion> changed = ranks;
      const OpKind kind = changed[0].ops[i].kind;
      if (c == 1 && kind != OpKind::kForward && kind != OpKind::kBackward) continue;
      changes[c](changed[0].ops[i]);
      if (changed[0].ops[i] == ranks[0].ops[i]) continue;
      EXPECT_FALSE(verify_ops(frame, changed, partition_).ok()) << op_kind_name(kind) << ", " << c;
    }
}

// Every element is updated, by ranks that share its holders between them.
TEST_P(ExpandTest, EveryElementIsUpdated) {
  std::set<Contributions::Element> updated;
  for (const Expansion& e : all(CallKind::kTrainStep))
    for (const Op& op : e.ops)
      if (op.kind == OpKind::kUpdate)
        for (const TensorSlice& slice : e.tensors[op.what])
          Contributions::for_each(slice, [&](const auto& element) { updated.insert(element); });
  size_t all_elements = 0;
  for (const TensorKind& kind : model_.kinds)
    all_elements += kind.elements * std::max(1, kind.layer_end - kind.layer_begin);
  EXPECT_EQ(updated.size(), all_elements);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, ExpandTest,
    ::testing::Values(BodyCase{1, 1, 1, 1, 0, false, {}}, BodyCase{3, 1, 1, 1, 1, false, {}},
                      BodyCase{2, 2, 2, 1, 1, true, {}}, BodyCase{1, 4, 2, 2, 0, true, {}},
                      BodyCase{2, 1, 4, 2, 3, false, {}}, BodyCase{2, 2, 2, 2, 2, true, {}},
                      BodyCase{1, 1, 4, 1, 0, false, {}},
                      BodyCase{2, 2, 2, 1, 0, false, PipelineOrder::kAllForwardFirst},
                      BodyCase{1, 2, 2, 1, 1, true, {}, 3}, BodyCase{2, 2, 1, 1, 0, false, {}, 2},
                      BodyCase{2, 1, 2, 1, 3, false, {}, 2, 1, 0, 2},
                      BodyCase{4, 1, 1, 1, 1, false, {}, 1, 1, 0, 2},
                      BodyCase{4, 2, 1, 1, 1, true, {}, 1, 2},
                      BodyCase{4, 2, 1, 1, 1, true, {}, 1, 4, 1, 2},
                      BodyCase{4, 2, 2, 1, 2, false, {}, 1, 2, 2, 0},
                      BodyCase{2, 2, 1, 1, 3, false, {}, 2, 4, 1, 4}));

TEST(RoundTest, IsCutWhereAPassOfItsOwnIsWorthIt) {
  const auto ones = [](int64_t count) { return std::vector<int64_t>(count, 1); };
  EXPECT_THAT(cut_round(ones(kRowsOfPass), 4), ElementsAre(kRowsOfPass));
  EXPECT_THAT(cut_round(ones(2 * kRowsOfPass), 4), ElementsAre(kRowsOfPass, kRowsOfPass));
  EXPECT_THAT(cut_round(ones(9 * kRowsOfPass), 3),
              ElementsAre(3 * kRowsOfPass, 3 * kRowsOfPass, 3 * kRowsOfPass));
  EXPECT_THAT(cut_round(ones(100), 1), ElementsAre(100));
  EXPECT_THAT(cut_round({500, 1, 1}, 4), ElementsAre(1, 1, 1));
  EXPECT_THAT(cut_round({1, 1, 500}, 2), ElementsAre(2, 1));
  EXPECT_THAT(cut_round({}, 2), ElementsAre(0));
}

class RoundOfStages : public testing::TestWithParam<int> {};

TEST_P(RoundOfStages, EveryBatchPassesEveryStage) {
  CallPlacement where;
  where.strategy.pp = 3, where.strategy.interleave = GetParam();
  for (int rank = 0; rank < 3; ++rank) where.mesh.devices.push_back(DeviceId{rank});
  ModelShape model;
  model.layers = 6, model.hidden = 4;
  const CallFrame frame{CallId{0}, CallKind::kGenerate, &where, &model};
  for (const bool agrees : {false, true}) {
    const RoundWork round{7, 30, agrees, {20, 17}};
    std::vector<Expansion> ranks;
    for (const DeviceId rank : where.mesh.devices) ranks.push_back(expand(frame, rank, round));
    EXPECT_EQ(verify_round(frame, ranks, round).message(), "");
    for (size_t r = 0; r < ranks.size(); ++r)
      for (size_t i = 0; i < ranks[r].ops.size(); ++i) {
        std::vector<Expansion> without = ranks, elsewhere = ranks;
        erase_op(&without[r], i);
        EXPECT_FALSE(verify_round(frame, without, round).ok())
            << "rank " << r << " without " << op_kind_name(ranks[r].ops[i].kind);
        OpKind& run = elsewhere[r].ops[i].run;
        run = run == OpKind::kRound ? OpKind::kAgree : OpKind::kRound;
        EXPECT_FALSE(verify_round(frame, elsewhere, round).ok())
            << "rank " << r << ", " << op_kind_name(ranks[r].ops[i].kind);
      }
  }
}

INSTANTIATE_TEST_SUITE_P(OfRunsOfLayers, RoundOfStages, testing::Values(1, 2));

// Counted over all rounds, however they come.
TEST(RoundTest, AgreementsAreAsFarApartWhateverTheRounds) {
  EXPECT_EQ(agreements_in(0, kRoundsBetweenAgreements - 1, 1), 0);
  EXPECT_EQ(agreements_in(kRoundsBetweenAgreements - 1, 1, 1), 1);
  int64_t before = 0, sum = 0;
  for (const int64_t rounds : {1, 70, 3, 200, 17, 64})
    sum += agreements_in(before, rounds, 3), before += rounds;
  EXPECT_EQ(sum, agreements_in(0, before, 3));
  EXPECT_EQ(sum, before / kRoundsBetweenAgreements);
}

// There no token says what a rank lacks.
TEST(RoundTest, RoundsWithoutATokenAgreeEach) {
  EXPECT_EQ(agreements_in(5, 3, 0), 3);
  EXPECT_EQ(agreements_in(kRoundsBetweenAgreements - 1, 1, 0), 1);
}

TEST(ExpandTextTest, ReadsLikeAListing) {
  CallPlacement where;
  where.mesh.devices = {DeviceId{0}};
  ModelShape model;
  model.layers = 2, model.hidden = 4;
  const Partition one = partition_samples(samples_of(1, 2), where.strategy, {});
  EXPECT_EQ(ops_text(expand({CallId{0}, CallKind::kInfer, &where, &model}, DeviceId{0}, one), &one),
            "  0 forward embedding, layers 0-1, head micro-batch 0 {0,1} mini-batch 0\n");
}

}  // namespace
}  // namespace braid::inline program
