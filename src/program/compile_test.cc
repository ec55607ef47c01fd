// compile(plan, problem): one-device plans equal the plain program; plans over many devices verify;
// verification finds what is broken.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/rng.h"
#include "plan/execution_plan.h"
#include "plan/test_problem.h"
#include "plan/validate.h"
#include "program/exchange.h"
#include "program/list_mutants.h"
#include "program/placement.h"

namespace braid::inline program {
namespace {

using testing::HasSubstr;

DeviceMesh range(int first, int count) {
  DeviceMesh mesh;
  for (int i = 0; i < count; ++i) mesh.devices.push_back(DeviceId{first + i});
  return mesh;
}

CallPlan& entry(ExecutionPlan& plan, const std::string& call) {
  for (CallPlan& candidate : plan.calls)
    if (candidate.call == call) return candidate;
  ADD_FAILURE() << call;
  return plan.calls[0];
}

void place(ExecutionPlan& plan, const std::string& call, const DeviceMesh& mesh, int dp, int tp,
           int pp) {
  CallPlan& target = entry(plan, call);
  target.mesh = mesh;
  target.strategy = {};
  target.strategy.dp = dp, target.strategy.tp = tp, target.strategy.pp = pp;
}

int count(const Program& program, OpKind kind) {
  int sum = 0;
  for (const RankProgram& rank : program.ranks)
    for (const Instruction& i : rank.instructions) sum += i.kind == kind;
  return sum;
}

TEST(Compile, OneDevicePlanIsThePlainProgram) {
  for (const char* algorithm : {"ppo", "grpo"}) {
    TestProblem test;
    test.algorithm = algorithm, test.devices = 1;
    const PlanningProblem problem = make_test_problem(test);
    const auto program = compile(trivial_plan(problem), problem);
    ASSERT_TRUE(program.ok()) << program.status().message();
    EXPECT_EQ(program_text(*program), program_text(*compile(problem.graph)));
    EXPECT_EQ(program->ranks, compile(problem.graph)->ranks);
  }
}

TEST(Compile, EqualLayoutsMoveNoWeights) {
  const PlanningProblem problem = make_test_problem();
  const auto program = compile(uniform_plan(problem, 8, 1, 1), problem);
  ASSERT_TRUE(program.ok()) << program.status().message();
  EXPECT_TRUE(program->reallocations.empty());
  EXPECT_EQ(count(*program, OpKind::kReduce), 2 * 8);
  EXPECT_EQ(count(*program, OpKind::kRelease), 0);
}

// Generation on all devices with tp 2, training on halves with other layouts.
ExecutionPlan mixed_plan(const PlanningProblem& problem) {
  ExecutionPlan plan = uniform_plan(problem, 8, 1, 1);
  place(plan, "generate", range(0, 8), 4, 2, 1);
  place(plan, "old_logprob", range(0, 4), 2, 1, 2);
  place(plan, "update_actor", range(0, 4), 1, 2, 2);
  place(plan, "values", range(4, 4), 4, 1, 1);
  place(plan, "update_critic", range(4, 4), 2, 2, 1);
  return plan;
}

TEST(Compile, CopiesAreFilledBeforeAndReleasedAfterTheirCalls) {
  const PlanningProblem problem = make_test_problem();
  const Program program = *compile(mixed_plan(problem), problem);
  // Copies: of the actor for generate and old_logprob, of the critic for values.
  EXPECT_EQ(count(program, OpKind::kRelease), 8 + 4 + 4);
  // The actor's for generate (8) and old_logprob (4), the critic's for values (4): who trains has
  // a part of the copy too.
  EXPECT_EQ(count(program, OpKind::kReallocate), 8 + 4 + 4);
  double actor = 0;
  for (const Reallocation& each : program.reallocations)
    for (const Message& message : each.messages)
      if (program.copies[each.copy].role.value == "actor") actor += message.bytes;
  EXPECT_GT(actor, 0);
  EXPECT_EQ(program, *compile(mixed_plan(problem), problem));
  EXPECT_EQ(program_hash(program), program_hash(*compile(mixed_plan(problem), problem)));
}

// The actor's weights come to where the reference is, in its layout, after the update; what of the
// reference lies in other layouts is filled anew in each step.
TEST(Compile, ReferencesThatMoveGetTheWeightsInTheirLayout) {
  TestProblem test;
  test.algorithm = "kto";
  PlanningProblem problem = make_test_problem(test);
  problem.graph = with_moving_reference(problem.graph, 2);
  ExecutionPlan plan = uniform_plan(problem, 8, 1, 1);
  place(plan, "mismatched_ref_logprob", range(4, 4), 2, 2, 1);
  place(plan, "ref_logprob", range(4, 4), 1, 1, 4);
  place(plan, "update_actor", range(0, 4), 1, 2, 2);
  plan.roles.push_back({RoleId{"reference"}, Residency::kHost});
  plan.roles.push_back({RoleId{"actor"}, Residency::kHost, Residency::kHost});
  const auto compiled = compile(plan, problem);
  ASSERT_TRUE(compiled.ok()) << compiled.status().message();
  const CallId sync{static_cast<int32_t>(problem.graph.calls.size()) - 1};
  const CallPlacement& where = compiled->calls[sync.value];
  EXPECT_EQ(where.mesh, range(4, 4));
  const WeightCopy& copy = compiled->copies[where.copy];
  EXPECT_EQ(copy.role.value, "actor");
  EXPECT_EQ(copy.layout, param_layout(range(4, 4), entry(plan, "mismatched_ref_logprob").strategy));
  std::map<std::string, int> filled;  // by role: entries of the table
  for (const Reallocation& each : compiled->reallocations)
    ++filled[compiled->copies[each.copy].role.value];
  EXPECT_EQ(filled["reference"], 1);
  EXPECT_GE(filled["actor"], 2);
  for (int rank = 4; rank < 8; ++rank) {
    Program broken = *compiled;  // it moves to weights that may still be on their way
    for (Instruction& i : broken.ranks[rank].instructions)
      if (i.kind == OpKind::kCall && i.call == sync) i.after.clear();
    EXPECT_FALSE(verify(broken).ok()) << rank;
  }
  Program stale = *compiled;  // the other layout keeps what it had
  for (RankProgram& rank : stale.ranks)
    std::erase_if(rank.instructions, [&](const Instruction& i) {
      return i.kind == OpKind::kReallocate &&
             stale.copies[stale.reallocations[i.detail].copy].role.value == "reference";
    });
  EXPECT_FALSE(verify(stale).ok());
}

// Samples with random lengths.
std::vector<PartitionSample> random_samples(const CallPlacement& where, RandomStream* random) {
  std::vector<PartitionSample> out;
  for (int64_t i = 0; i < where.samples; ++i)
    out.push_back({SampleId{i}, GroupId{i / 4}, 1 + static_cast<int64_t>(random->below(50)),
                   1 + static_cast<int64_t>(random->below(200))});
  return out;
}

std::vector<SampleRows> rows_of_call(const Program& program, CallId id,
                                     const std::vector<PartitionSample>& samples) {
  const Call& call = program.graph.calls[id.value];
  const auto count = static_cast<int64_t>(samples.size());
  if (!uses_model(call) || call.kind == CallKind::kGenerate)
    return rows_by_rank(program, id, count, {});
  PartitionOptions options;
  options.trains = call.kind == CallKind::kTrainStep;
  options.minibatches = 2;
  const Partition partition = partition_samples(samples, program.calls[id.value].strategy, options);
  return rows_by_rank(program, id, count, partition.owned);
}

// Of a reward call, whose groups the generation owns.
std::vector<SampleRows> scored_in(const Program& program, CallId id,
                                  const std::vector<PartitionSample>& samples) {
  if (program.graph.calls[id.value].kind != CallKind::kReward) return {};
  const CallId beside = asked_beside(program.graph, id);
  std::vector<int64_t> groups;
  for (const PartitionSample& sample : samples) groups.push_back(sample.group.value);
  const CallPlacement& where = program.calls[beside.value];
  return scored_by_rank(program, id, groups,
                        partition_requests(std::ssize(samples), where.strategy));
}

using Holders = std::map<std::string, std::set<std::pair<int32_t, int32_t>>>;  // (rank, row)

// Moves come from ranks that have the rows to ranks that lack them, one for each two ranks.
void move(const Exchange& exchange, const std::vector<FieldMove>& moves, Holders* holders) {
  std::set<std::pair<int32_t, int32_t>> ranks;
  for (const FieldMove& move : moves) {
    EXPECT_TRUE(ranks.insert({move.from, move.to}).second);
    for (const int32_t rank : {move.from, move.to})
      EXPECT_EQ(std::count(exchange.members.begin(), exchange.members.end(), DeviceId{rank}), 1);
    for (size_t i = 0; i < exchange.fields.size(); ++i)
      for (const int32_t row : move.rows[i]) {
        const std::string& field = exchange.fields[i];
        EXPECT_EQ((*holders)[field].count({move.from, row}), 1U) << field;
        EXPECT_TRUE((*holders)[field].insert({move.to, row}).second) << field;
      }
  }
}

// Every rank gets the samples of each field that its calls read and it did not write, once.
void expect_samples_once(const Program& program, RandomStream* random) {
  const auto samples = random_samples(program.calls.back(), random);
  FieldHoldings holdings(program.ranks.size());
  Holders holders;
  for (size_t i = 0; i < program.graph.calls.size(); ++i) {
    const CallId id{static_cast<int32_t>(i)};
    const auto written = written_by_rank(program, id, rows_of_call(program, id, samples),
                                         scored_in(program, id, samples));
    for (const Field& field : program.graph.calls[i].writes) {
      holdings.note(field.name, written, samples.size());
      for (size_t rank = 0; rank < written.size(); ++rank)
        for (const int32_t row : written[rank])
          holders[field.name].insert({static_cast<int32_t>(rank), row});
    }
  }
  const std::vector<int64_t> sizes(samples.size(), 1);
  for (const Exchange& exchange : program.exchanges) {
    if (exchange.shared()) continue;
    const auto needed =
        read_by_rank(program, exchange.consumer, rows_of_call(program, exchange.consumer, samples),
                     scored_in(program, exchange.consumer, samples));
    std::vector<MovedField> fields;
    for (const std::string& field : exchange.fields) fields.push_back({field, sizes});
    move(exchange, holdings.bring(fields, needed, exchange.members), &holders);
    for (const std::string& field : exchange.fields)
      for (size_t rank = 0; rank < needed.size(); ++rank)
        for (const int32_t row : needed[rank])
          EXPECT_EQ(holders[field].count({static_cast<int32_t>(rank), row}), 1U) << field;
  }
}

// Elements of each (device, kind, layer) as intervals in order.
using Elements = std::map<std::tuple<DeviceId, int32_t, int64_t>, std::vector<Interval>>;

Elements held(const WeightCopy& copy, const std::vector<TensorKind>& kinds, int64_t layers) {
  Strategy grid;
  grid.dp = copy.layout.dp, grid.tp = copy.layout.tp, grid.pp = copy.layout.pp;
  Elements out;
  for (size_t i = 0; i < copy.layout.mesh.devices.size(); ++i)
    for (size_t k = 0; k < kinds.size(); ++k) {
      const GridPosition at = grid_position(grid, i);
      const Interval elements = held_elements(kinds[k], copy.layout, at);
      for (const Interval& run : held_layers(kinds[k], copy.layout, layers, at.stage))
        for (int64_t layer = run.begin; layer < run.end && elements.size() > 0; ++layer)
          out[{copy.layout.mesh.devices[i], static_cast<int32_t>(k), layer}] = {elements};
    }
  return out;
}

const WeightCopy& home_of(const Program& program, const RoleId& role) {
  return *std::find_if(program.copies.begin(), program.copies.end(),
                       [&](const WeightCopy& copy) { return copy.home && copy.role == role; });
}

// What a device holds of the home copy and what it receives make up its part of a copy without
// gaps, and nothing arrives twice or is there already.
void expect_weights_whole(const Program& program, const PlanningProblem& problem, size_t index) {
  const WeightCopy& copy = program.copies[index];
  const ModelSize& model = model_of(problem, copy.role).spec;
  const auto kinds = tensor_kinds(model, find_role(problem.graph, copy.role)->scalar_head);
  const Elements wanted = held(copy, kinds, model.layers);
  Elements had = held(home_of(program, copy.role), kinds, model.layers), pieces;
  for (const auto& [key, elements] : wanted) {
    const Interval want = elements[0], home = had.count(key) > 0 ? had[key][0] : Interval{};
    const Interval both{std::max(want.begin, home.begin), std::min(want.end, home.end)};
    if (both.size() > 0) pieces[key].push_back(both);
  }
  for (const Reallocation& each : program.reallocations) {
    if (each.copy != static_cast<int32_t>(index)) continue;
    for (const Message& message : each.messages)
      for (const MessagePart& part : message.parts)
        for (int64_t layer = part.layers.begin; layer < part.layers.end; ++layer)
          pieces[{message.to, part.item, layer}].push_back(part.units);
  }
  for (auto& [key, intervals] : pieces) {
    std::sort(intervals.begin(), intervals.end(),
              [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
    Interval joined = intervals[0];
    for (size_t i = 1; i < intervals.size() && joined.end == intervals[i].begin; ++i)
      joined.end = intervals[i].end;
    intervals = {joined};
  }
  EXPECT_EQ(pieces, wanted) << "copy " << index << " of " << copy.role;
}

TEST(Compile, EveryRankReceivesTheSamplesThatItReadsOnce) {
  const PlanningProblem problem = make_test_problem();
  RandomStream random(5, 0);
  expect_samples_once(*compile(mixed_plan(problem), problem), &random);
}

TEST(Compile, StateInHostMemoryComesAndGoes) {
  TestProblem test;
  test.devices = 1;
  const PlanningProblem problem = make_test_problem(test);
  ExecutionPlan plan = trivial_plan(problem);
  plan.roles = {{RoleId{"actor"}, Residency::kHost, Residency::kHost}};
  const Program program = *compile(plan, problem);
  // Weights once for all calls of the role, the optimizer around training.
  EXPECT_EQ(count(program, OpKind::kLoad), 2);
  EXPECT_EQ(count(program, OpKind::kOffload), 2);
  plan.roles[0].timing = OffloadTiming::kAfterEachCall;
  EXPECT_EQ(count(*compile(plan, problem), OpKind::kLoad), 3 + 1);  // generate, old_logprob, update
}

Program broken_base() {
  const PlanningProblem problem = make_test_problem();
  return *compile(mixed_plan(problem), problem);
}

// The position of the n-th instruction of a kind on a rank.
size_t position(const Program& program, size_t rank, OpKind kind, int n = 0) {
  const auto& list = program.ranks[rank].instructions;
  for (size_t i = 0; i < list.size(); ++i)
    if (list[i].kind == kind && n-- == 0) return i;
  ADD_FAILURE() << op_kind_name(kind);
  return 0;
}

TEST(Verify, FindsReallocationsThatDoNotMakeACopyWhole) {
  const auto broken = [](const auto& change) {
    Program program = broken_base();
    change(program.reallocations[0]);
    return verify(program).message();
  };
  EXPECT_THAT(broken([](Reallocation& r) { r.messages.pop_back(); }), HasSubstr("lacks"));
  EXPECT_THAT(broken([](Reallocation& r) { r.messages.push_back(r.messages[0]); }),
              HasSubstr("has already got what it receives"));
  EXPECT_THAT(broken([](Reallocation& r) { r.messages[0].parts[0].units.end -= 1; }),
              HasSubstr("lacks"));
  EXPECT_THAT(broken([](Reallocation& r) { r.messages[0].from = DeviceId{7}; }),
              HasSubstr("has not all that it sends"));
  EXPECT_FALSE(broken([](Reallocation& r) { r.messages[0].to = r.messages[0].from; }).empty());
  EXPECT_THAT(broken([](Reallocation& r) { r.members.pop_back(); }),
              HasSubstr("rank 7 is no member"));
  EXPECT_THAT(broken([](Reallocation& r) { r.copy = 99; }), HasSubstr("fills no copy"));
}

// Every message of every reallocation, left out or brought to another rank.
TEST(Verify, EveryMessageIsMissed) {
  const Program whole = broken_base();
  int tried = 0;
  for (size_t entry = 0; entry < whole.reallocations.size(); ++entry)
    for (size_t i = 0; i < whole.reallocations[entry].messages.size(); ++i) {
      Program program = whole;
      auto& messages = program.reallocations[entry].messages;
      messages.erase(messages.begin() + static_cast<int64_t>(i));
      EXPECT_FALSE(verify(program).ok()) << "without message " << i << " of " << entry;
      for (const DeviceId other : whole.reallocations[entry].members) {
        if (other == whole.reallocations[entry].messages[i].to) continue;
        program.reallocations[entry] = whole.reallocations[entry];
        program.reallocations[entry].messages[i].to = other;
        EXPECT_FALSE(verify(program).ok()) << "message " << i << " of " << entry << " to " << other;
        ++tried;
      }
    }
  EXPECT_GT(tried, 100);
}

TEST(Verify, FindsMissingWaitsForWeights) {
  Program program = broken_base();
  int dropped = 0;
  for (size_t rank = 0; rank < program.ranks.size(); ++rank) {
    const auto& list = program.ranks[rank].instructions;
    for (size_t i = 0; i < list.size(); ++i)
      for (const InstructionId before : std::vector<InstructionId>(list[i].after)) {
        if (list[before.value].kind != OpKind::kReallocate) continue;
        Instruction& changed = program.ranks[rank].instructions[i];
        const std::vector<InstructionId> whole = changed.after;
        std::erase(changed.after, before);
        EXPECT_FALSE(verify(program).ok()) << "rank " << rank << ", " << i;
        changed.after = whole;
        ++dropped;
      }
  }
  EXPECT_GT(dropped, 16);  // uses of the copies, and updates of what they are filled from
  EXPECT_TRUE(verify(program).ok());
}

TEST(Verify, FindsCirclesBetweenRanks) {
  // Ranks that come to two exchanges of one call and its reallocation in different orders.
  Program program = broken_base();
  auto& list = program.ranks[0].instructions;
  const size_t at = position(program, 0, OpKind::kReallocate);
  size_t meets = at + 1;
  while (list[meets].kind != OpKind::kCall && list[meets].kind != OpKind::kRegionBegin) ++meets;
  // Behind a call that waits for nobody.
  Instruction moved = list[at];
  for (size_t i = at; i < meets; ++i) list[i] = list[i + 1];
  list[meets] = moved;
  EXPECT_FALSE(verify(program).ok());
}

TEST(Verify, FindsExchangesAndSharesThatAreNotThere) {
  for (const OpKind kind : {OpKind::kExchange, OpKind::kShare})
    for (const size_t rank : {0, 5}) {
      Program program = broken_base();
      erase_instruction(&program, rank, position(program, rank, kind));
      EXPECT_THAT(verify(program).message(), HasSubstr("of this rank should"));
    }
  Program program = broken_base();
  auto& list = program.ranks[1].instructions;
  std::swap(list[position(program, 1, OpKind::kExchange)].detail,
            list[position(program, 1, OpKind::kExchange, 1)].detail);
  EXPECT_THAT(verify(program).message(), HasSubstr("of this rank should"));
}

TEST(Verify, FindsExchangesOfOtherCallsFieldsAndRanks) {
  const auto broken = [](const auto& change) {
    Program program = broken_base();
    const auto entry = std::find_if(program.exchanges.begin(), program.exchanges.end(),
                                    [](const Exchange& each) { return !each.shared(); });
    change(*entry);
    return verify(program).message();
  };
  EXPECT_THAT(broken([](Exchange& e) { e.fields.pop_back(); }),
              HasSubstr("no exchange brings sampler_logprobs of generate to reward"));
  EXPECT_THAT(broken([](Exchange& e) { e.fields.push_back("values"); }),
              HasSubstr("generate does not write values"));
  EXPECT_THAT(broken([](Exchange& e) { e.members.pop_back(); }),
              HasSubstr("rank 7 of its calls is no member"));
  EXPECT_THAT(broken([](Exchange& e) { std::swap(e.members[0], e.members[1]); }),
              HasSubstr("rank 0 is out of the order of its members"));
  EXPECT_THAT(broken([](Exchange& e) { e.members.push_back(DeviceId{8}); }),
              HasSubstr("rank 8 is not in the program"));
  EXPECT_THAT(broken([](Exchange& e) { ++e.consumer.value; }),
              HasSubstr("is between the calls of exchange"));
  EXPECT_THAT(broken([](Exchange& e) { e.producer = CallId{99}; }), HasSubstr("does not have"));
}

TEST(Verify, FindsCallsThatDoNotWaitForWhatTheyRead) {
  Program program = broken_base();
  const auto is_exchange = [&](size_t rank, InstructionId id) {
    return program.ranks[rank].instructions[id.value].kind == OpKind::kExchange;
  };
  int dropped = 0;
  for (size_t rank = 0; rank < program.ranks.size(); ++rank)
    for (Instruction& i : program.ranks[rank].instructions)
      for (const InstructionId before : std::vector<InstructionId>(i.after)) {
        if (!is_exchange(rank, before)) continue;
        const std::vector<InstructionId> whole = i.after;
        std::erase(i.after, before);
        EXPECT_THAT(verify(program).message(), HasSubstr("without waiting for its exchange"));
        i.after = whole;
        ++dropped;
      }
  EXPECT_GT(dropped, 20);
  EXPECT_TRUE(verify(program).ok());
}

TEST(Verify, FindsMissingInstructions) {
  Program program = broken_base();
  program.ranks[5].instructions[position(program, 5, OpKind::kReduce)].detail = 99;
  EXPECT_THAT(verify(program).message(), HasSubstr("refers to entry 99"));
  program = broken_base();
  auto& list = program.ranks[2].instructions;
  list.erase(list.begin() + static_cast<int64_t>(position(program, 2, OpKind::kRegionEnd)));
  EXPECT_FALSE(verify(program).ok());
}

// Every instruction that ranks are in together names those ranks.
TEST(Verify, FindsInstructionsAmongOtherRanks) {
  int changed = 0;
  const Program right = broken_base();
  for (size_t rank = 0; rank < right.ranks.size(); ++rank)
    for (size_t i = 0; i < right.ranks[rank].instructions.size(); ++i) {
      const OpKind kind = right.ranks[rank].instructions[i].kind;
      if (kind != OpKind::kAgree && kind != OpKind::kReduce && kind != OpKind::kAllGather) continue;
      const auto groups = static_cast<int32_t>(right.groups.size());
      for (int32_t other = kind == OpKind::kAgree ? -1 : 0; other < groups; ++other) {
        Program program = right;
        int32_t& detail = program.ranks[rank].instructions[i].detail;
        if (other == detail) continue;
        detail = other, ++changed;
        EXPECT_THAT(verify(program).message(), HasSubstr("among the ranks that it should be"))
            << "rank " << rank << ", instruction " << i << ", group " << other;
      }
    }
  EXPECT_GT(changed, 20);
}

// A plan with offloaded state, prefetched weights and sharded optimizers too.
ExecutionPlan offloaded_plan(const PlanningProblem& problem) {
  ExecutionPlan plan = mixed_plan(problem);
  plan.roles = {{RoleId{"actor"}, Residency::kHost, Residency::kHost},
                {RoleId{"reference"}, Residency::kHost}};
  plan.roles[1].prefetch = true;
  entry(plan, "update_critic").strategy.zero_stage = 1;
  return plan;
}

Program offloaded_base() {
  const PlanningProblem problem = make_test_problem();
  return *compile(offloaded_plan(problem), problem);
}

TEST(Verify, EveryInstructionIsMissed) {
  for (const Program& whole : {broken_base(), offloaded_base()})
    for (size_t rank = 0; rank < whole.ranks.size(); ++rank)
      for (size_t i = 0; i < whole.ranks[rank].instructions.size(); ++i) {
        Program program = whole;
        erase_instruction(&program, rank, i);
        EXPECT_FALSE(verify(program).ok()) << "rank " << rank << ", " << i << " "
                                           << op_kind_name(whole.ranks[rank].instructions[i].kind);
      }
}

TEST(Verify, CallsThatChangePlacesAreFound) {
  const Program whole = broken_base();
  int swapped = 0;
  for (size_t rank = 0; rank < whole.ranks.size(); ++rank) {
    const auto& list = whole.ranks[rank].instructions;
    std::vector<size_t> calls;
    for (size_t i = 0; i < list.size(); ++i)
      if (list[i].kind == OpKind::kCall && list[i].detail < 0) calls.push_back(i);
    for (size_t k = 0; k + 1 < calls.size(); ++k) {
      Program program = whole;
      auto& changed = program.ranks[rank].instructions;
      std::swap(changed[calls[k]].call, changed[calls[k + 1]].call);
      EXPECT_FALSE(verify(program).ok()) << "rank " << rank << ", call " << k;
      ++swapped;
    }
  }
  EXPECT_GT(swapped, 8);
}

// A rank compiles what the whole compile gives it, without the lists of others.
void expect_ranks_alike(const ExecutionPlan& plan, const PlanningProblem& problem) {
  const Program whole = *compile(plan, problem);
  for (size_t rank = 0; rank < whole.ranks.size(); ++rank) {
    auto own = compile_rank(plan, problem, DeviceId{static_cast<int32_t>(rank)});
    ASSERT_TRUE(own.ok()) << own.status().message();
    for (size_t other = 0; other < whole.ranks.size(); ++other) {
      if (other == rank) continue;
      EXPECT_TRUE(own->ranks[other].instructions.empty());
      own->ranks[other] = whole.ranks[other];
    }
    EXPECT_EQ(*own, whole) << "rank " << rank;
  }
}

TEST(Compile, OneRankIsThatOfTheWhole) {
  const PlanningProblem problem = make_test_problem();
  expect_ranks_alike(mixed_plan(problem), problem);
  expect_ranks_alike(offloaded_plan(problem), problem);
  EXPECT_THAT(compile_rank(mixed_plan(problem), problem, DeviceId{8}).status().message(),
              HasSubstr("rank 8: the plan is for 8 devices"));
}

// Random plans over two nodes: all compile, which includes verification, and move everything once.
TEST(Compile, RandomPlansVerify) {
  static const int kShapes[][3] = {{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {2, 2, 1},
                                   {4, 1, 1}, {1, 2, 2}, {2, 2, 2}, {1, 8, 1},
                                   {8, 1, 1}, {2, 4, 2}, {4, 2, 2}, {1, 4, 4}};
  TestProblem test;
  test.nodes = 2, test.actor = test.critic = "qwen2.5-0.5b";
  RandomStream random(3, 0);
  int compiled = 0;
  for (int trial = 0; trial < 400; ++trial) {
    test.algorithm = trial % 2 == 0 ? "ppo" : "grpo";
    test.samples = trial % 2 == 0 ? 1 : 4;
    PlanningProblem problem = make_test_problem(test);
    if (trial % 3 == 0) problem.graph = with_moving_reference(problem.graph, 1);
    ExecutionPlan plan = uniform_plan(problem, 16, 1, 1);
    for (CallPlan& call : plan.calls) {
      const auto& shape = kShapes[random.below(12)];
      const int devices = shape[0] * shape[1] * shape[2];
      const int first = devices * static_cast<int>(random.below(16 / devices));
      place(plan, call.call, range(first, devices), shape[0], shape[1], shape[2]);
      if (call.call.rfind("update", 0) == 0 && shape[0] > 1)
        call.strategy.zero_stage = shape[2] > 1 ? 1 : static_cast<int>(random.below(4));
    }
    if (trial % 4 == 0) plan.roles.push_back({RoleId{"actor"}, Residency::kHost, Residency::kHost});
    if (trial % 6 == 0) plan.roles.push_back({RoleId{"reference"}, Residency::kHost});
    if (!validate(plan, problem).ok()) continue;  // heads that do not divide and the like
    const auto program = compile(plan, problem);
    ASSERT_TRUE(program.ok()) << program.status().message();
    expect_samples_once(*program, &random);
    for (size_t copy = 0; copy < program->copies.size(); ++copy)
      if (!program->copies[copy].home && changes(problem.graph, program->copies[copy].role))
        expect_weights_whole(*program, problem, copy);
    if (++compiled % 10 == 0) expect_ranks_alike(plan, problem);
  }
  EXPECT_GT(compiled, 60);
}

}  // namespace
}  // namespace braid::inline program
