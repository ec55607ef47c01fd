#include "program/streamed_update.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/contains.h"
#include "base/text.h"
#include "plan/validate.h"
#include "program/computed_rows.h"
#include "program/placement.h"

namespace braid::inline program {
namespace {

constexpr const char* kWhere = "fusion.train_beside_generation: ";

Status refused(const std::string& why) { return invalid_input(cat(kWhere, why, "; set it false")); }

// The only call of a kind.
Result<CallId> only_one(const Graph& graph, CallKind kind) {
  CallId out{-1};
  for (int32_t i = 0; i < std::ssize(graph.calls); ++i) {
    if (graph.calls[i].kind != kind) continue;
    if (out.value >= 0)
      return refused(cat("graph ", graph.name, " has several calls of kind ", call_kind_name(kind),
                         ", ", graph.calls[out.value].name, " and ", graph.calls[i].name,
                         ", and samples could go on to one alone"));
    out = CallId{i};
  }
  if (out.value >= 0) return out;
  return refused(cat("graph ", graph.name, " has no call of kind ", call_kind_name(kind)));
}

// The calls that write what a call reads.
std::vector<CallId> producers(const Graph& graph, CallId reader) {
  std::set<CallId> out;
  for (const std::string& field : graph.calls[reader.value].reads)
    out.insert(producer_of(graph, field));
  return {out.begin(), out.end()};
}

bool gives_samples(const Program& program, CallId call) {
  return program.graph.calls[call.value].kind == CallKind::kFetch ||
         call == program.scoring.generate;
}

Status check_reward(const Program& program, CallId id) {
  const Call& call = program.graph.calls[id.value];
  if (uses_model(call)) return refused(cat(call.name, " asks a reward model"));
  if (program.rewards_together)
    return refused(cat(call.name,
                       " is asked about all samples of a step together (rollout.record, or a "
                       "reward of batch: step)"));
  for (const CallId from : producers(program.graph, id))
    if (!gives_samples(program, from))
      return refused(cat(call.name, " reads what ", program.graph.calls[from.value].name, " says"));
  return ok_status();
}

Status check_advantages(const Program& program, CallId id, CallId reward) {
  const Call& call = program.graph.calls[id.value];
  if (!call.groups_alone || !computed_by_readers(program.graph, call))
    return refused(cat(call.name, " looks at all samples"));
  for (const CallId from : producers(program.graph, id))
    if (from != reward && !gives_samples(program, from))
      return refused(cat(call.name, " reads what ", program.graph.calls[from.value].name, " says"));
  return ok_status();
}

Status check_placement(const Program& program, const StreamedUpdate& streamed) {
  const CallPlacement &learns = program.calls[streamed.update.value],
                      &draws = program.calls[program.scoring.generate.value];
  const std::string& name = program.graph.calls[streamed.update.value].name;
  for (const DeviceId device : learns.mesh.devices)
    if (contains(draws.mesh.devices, device))
      return refused(cat(name, " shares devices with ",
                         program.graph.calls[program.scoring.generate.value].name,
                         ", which are generating"));
  return learns.samples == draws.samples
             ? ok_status()
             : refused(cat(name, " does not learn from all samples that are generated"));
}

// The hand-over by which each row had finished and is scored, [row]; `never` where there is none.
std::vector<size_t> scored_at(const Program& program, size_t samples,
                              const std::vector<HandOver>& handed, size_t never) {
  std::vector<size_t> out(samples, never);
  for (size_t at = 0; at < handed.size(); ++at)
    for (const int32_t row : handed[at].early) out[row] = at;
  const CallPlacement& generate = program.calls[program.scoring.generate.value];
  for (const CallId scorer : program.scoring.scorers) {
    const FreeRanks free = free_ranks(program.calls[scorer.value], generate, handed);
    for (size_t at = 0; at < handed.size(); ++at)
      if (!contains(free[at], true))
        for (const int32_t row : handed[at].early) out[row] = never;
  }
  return out;
}

SampleRows without(const SampleRows& rows, const std::set<int32_t>& taken) {
  SampleRows out;
  for (const int32_t row : rows)
    if (taken.count(row) == 0) out.push_back(row);
  return out;
}

// A mini-batch of rows that data-parallel ranks have.
MiniBatch minibatch_of(const std::vector<SampleRows>& shares, const StreamedSamples& update) {
  return partition_shares(shares, update.samples, update.strategy, update.options)
      .minibatches.front();
}

// With what each data-parallel rank has of the mini-batches.
Partition with_owned(Partition out, int dp) {
  std::vector<std::set<int32_t>> owned(dp);
  for (const MiniBatch& batch : out.minibatches)
    for (int rank = 0; rank < dp; ++rank)
      for (const SampleRows& rows : batch.micro_batches[rank])
        owned[rank].insert(rows.begin(), rows.end());
  out.owned.clear();
  for (const auto& rows : owned) out.owned.emplace_back(rows.begin(), rows.end());
  return out;
}

// With another first mini-batch.
Partition with_first(Partition whole, MiniBatch batch) {
  const auto dp = static_cast<int>(batch.micro_batches.size());
  whole.minibatches.front() = std::move(batch);
  return with_owned(std::move(whole), dp);
}

// As if those that have not finished had as many tokens as these have in the mean.
LossTotals estimated(const LossTotals& of_part, const SampleRows& all,
                     const std::vector<PartitionSample>& samples) {
  std::set<GroupId> groups;
  for (const int32_t row : all) groups.insert(samples[row].group);
  const auto count = static_cast<int64_t>(all.size());
  const int64_t tokens = of_part.tokens * count / std::max<int64_t>(1, of_part.samples);
  return {std::max<int64_t>(1, tokens), count, static_cast<int64_t>(groups.size())};
}

}  // namespace

Result<StreamedUpdate> streamed_update(const Program& program) {
  StreamedUpdate out;
  const Graph& graph = program.graph;
  BRAID_ASSIGN(out.update, only_one(graph, CallKind::kTrainStep));
  BRAID_ASSIGN(out.reward, only_one(graph, CallKind::kReward));
  const Call& update = graph.calls[out.update.value];
  if (update.compares_samples) return refused(cat(update.name, " compares samples in its loss"));
  for (const CallId from : producers(graph, out.update)) {
    const Call& call = graph.calls[from.value];
    if (gives_samples(program, from) || from == out.reward) continue;
    if (contains(program.scoring.scorers, from)) continue;
    if (call.kind != CallKind::kCompute || out.advantages.value >= 0)
      return refused(cat(update.name, " reads what ", call.name,
                         " says, which does not score what has finished"));
    out.advantages = from;
  }
  if (out.advantages.value < 0) return refused(cat(update.name, " reads no advantages"));
  BRAID_TRY(check_reward(program, out.reward));
  BRAID_TRY(check_advantages(program, out.advantages, out.reward));
  BRAID_TRY(check_placement(program, out));
  return out;
}

Status stream_update(const ExecutionPlan& plan, const PlanningProblem& problem, Program* program) {
  BRAID_ASSIGN(const StreamedUpdate streamed, streamed_update(*program));
  const RoleId& role = program->graph.calls[streamed.update.value].role;
  if (role_plan(plan, role).weights == Residency::kHost)
    return refused(cat("the weights of ", role, " rest on the host between calls"));
  if (problem.leaves_out_truncated)
    return refused(
        "the update leaves out responses that were cut (algorithm.mask_truncated), so its "
        "mini-batches are known when all have ended");
  CallPlacement& asks = program->calls[streamed.reward.value];
  asks.mesh.devices = asking_ranks(*program, streamed);
  asks.strategy.dp = static_cast<int>(asks.mesh.devices.size());
  program->scoring.streamed = streamed;
  return ok_status();
}

bool may_train_beside_generation(const Graph& graph) {
  const auto count = [&](const auto& wanted) {
    return std::count_if(graph.calls.begin(), graph.calls.end(), wanted);
  };
  const auto of_kind = [](CallKind kind) {
    return [kind](const Call& call) { return call.kind == kind; };
  };
  return count(of_kind(CallKind::kGenerate)) == 1 && count(of_kind(CallKind::kTrainStep)) == 1 &&
         count(of_kind(CallKind::kReward)) == 1 &&
         count([](const Call& call) { return call.groups_alone; }) == 1 && !draws_again(graph);
}

Status verify_streamed_update(const Program& program) {
  if (!program.scoring.streamed.is_on()) return ok_status();
  if (!program.scoring.is_on() || program.calls.empty())
    return invalid_input("an update begins beside a generation that is not handed over");
  BRAID_ASSIGN(const StreamedUpdate right, streamed_update(program));
  if (!(right == program.scoring.streamed))
    return invalid_input("another update begins beside the generation than can");
  for (const DeviceId rank : asking_ranks(program, right))
    if (!contains(program.calls[right.reward.value].mesh.devices, rank))
      return invalid_input(cat("rank ", rank, " trains samples early and asks for no rewards"));
  return ok_status();
}

std::vector<DeviceId> asking_ranks(const Program& program, const StreamedUpdate& streamed) {
  std::vector<DeviceId> out = program.calls[streamed.reward.value].mesh.devices;
  const CallPlacement& update = program.calls[streamed.update.value];
  for (int dp_rank = 0; dp_rank < update.strategy.dp; ++dp_rank)
    if (const DeviceId head = head_of(update, dp_rank); !contains(out, head)) out.push_back(head);
  return out;
}

std::vector<std::string> streamed_fields(const Program& program, CallId producer, CallId consumer,
                                         SamplePart part) {
  const StreamedUpdate& streamed = program.scoring.streamed;
  std::vector<std::string> out;
  if (!streamed.is_on() || !of_hand_over(program, consumer, part)) return out;
  const Call& from = program.graph.calls[producer.value];
  const bool cut = producer == program.scoring.generate && consumer == streamed.reward;
  const bool compared = producer == streamed.advantages && consumer == streamed.update;
  const std::vector<std::string> shared = shared_fields(from);
  for (const Field& field : from.writes)
    if (field.type != FieldType::kCount && ((cut && contains(shared, field.name)) || compared))
      out.push_back(field.name);
  return out;
}

std::vector<SampleRows> streamed_rows(const Program& program, const SampleRows& rows,
                                      const std::vector<PartitionSample>& samples,
                                      const std::vector<HandOver>& handed) {
  const size_t never = handed.size();
  const std::vector<size_t> of_row = scored_at(program, samples.size(), handed, never);
  std::map<GroupId, size_t> of_group;
  for (size_t row = 0; row < samples.size(); ++row) {
    size_t& last = of_group.emplace(samples[row].group, 0).first->second;
    last = std::max(last, of_row[row]);
  }
  std::vector<SampleRows> out(handed.size());
  for (const int32_t row : rows)
    if (const size_t at = of_group.at(samples[row].group); at != never) out[at].push_back(row);
  return out;
}

Partition partition_streamed(const Program& program, const StreamedSamples& update, SamplePart part,
                             const std::vector<HandOver>& handed) {
  const auto& [whole, samples, strategy, options] = update;
  const bool early = ends_before_update(program, program.scoring.streamed.update, part);
  const Partition none{{}, std::vector<SampleRows>(strategy.dp)};
  if (whole.minibatches.empty()) return early ? none : whole;
  const MiniBatch& first = whole.minibatches.front();
  const std::vector<SampleRows> rows = streamed_rows(program, first.rows, samples, handed);
  std::set<int32_t> before;
  for (size_t at = 0; at < std::min(rows.size(), hand_over_of(part)); ++at)
    before.insert(rows[at].begin(), rows[at].end());
  if (early && rows.at(hand_over_of(part)).empty()) return none;
  if (!early && before.empty()) return whole;
  const SampleRows own = early ? rows.at(hand_over_of(part)) : without(first.rows, before);
  MiniBatch batch = minibatch_of(partition_over_ranks(own, samples, strategy, options), update);
  batch.begun = !before.empty(), batch.goes_on = early;
  batch.totals = early ? estimated(batch.totals, first.rows, samples) : first.totals;
  batch.rows = early ? own : first.rows;
  return early ? with_owned({{batch}, {}}, strategy.dp) : with_first(whole, std::move(batch));
}

Partition partition_again(const Program& program, const StreamedSamples& update,
                          const std::vector<HandOver>& handed) {
  std::vector<SampleRows> shares(update.strategy.dp);
  for (const SamplePart part : parts_of_call(program, program.scoring.streamed.update)) {
    const Partition of_part = partition_streamed(program, update, part, handed);
    if (of_part.minibatches.empty()) continue;
    const auto& micro_batches = of_part.minibatches.front().micro_batches;
    for (size_t rank = 0; rank < shares.size(); ++rank)
      for (const SampleRows& rows : micro_batches[rank])
        shares[rank].insert(shares[rank].end(), rows.begin(), rows.end());
  }
  MiniBatch batch = minibatch_of(shares, update);
  batch.totals = update.whole.minibatches.front().totals;
  batch.rows = update.whole.minibatches.front().rows;
  return with_first(update.whole, std::move(batch));
}

Partition joined_streamed(const std::vector<Partition>& parts) {
  Partition out = joined(parts);
  out.minibatches = parts.back().minibatches;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    if (parts[i].minibatches.empty() || out.minibatches.empty()) continue;
    const MiniBatch& early = parts[i].minibatches.front();
    MiniBatch& first = out.minibatches.front();
    for (size_t rank = 0; rank < early.tokens.size(); ++rank) {
      const auto& rows = early.micro_batches[rank];
      const auto& tokens = early.tokens[rank];
      first.micro_batches[rank].insert(first.micro_batches[rank].end(), rows.begin(), rows.end());
      first.tokens[rank].insert(first.tokens[rank].end(), tokens.begin(), tokens.end());
    }
  }
  return out;
}

std::vector<SampleRows> compared_early(const Program& program, const std::vector<int64_t>& groups,
                                       const Partition& part) {
  const CallPlacement& update = program.calls[program.scoring.streamed.update.value];
  std::map<int64_t, std::pair<int32_t, DeviceId>> first;  // of a group: its first row, and where
  for (size_t dp_rank = 0; dp_rank < part.owned.size(); ++dp_rank)
    for (const int32_t row : part.owned[dp_rank]) {
      const std::pair here(row, head_of(update, static_cast<int>(dp_rank)));
      const auto [known, fresh] = first.emplace(groups[row], here);
      if (!fresh) known->second = std::min(known->second, here);
    }
  std::vector<SampleRows> out(program.ranks.size());
  for (size_t row = 0; row < groups.size(); ++row)
    if (const auto found = first.find(groups[row]); found != first.end())
      out[found->second.second.value].push_back(static_cast<int32_t>(row));
  return out;
}

std::vector<SampleRows> asked_with_early(std::vector<SampleRows> asked,
                                         const std::vector<std::vector<SampleRows>>& early) {
  std::set<int32_t> taken;
  for (const auto& part : early)
    for (const SampleRows& rows : part) taken.insert(rows.begin(), rows.end());
  for (size_t rank = 0; rank < asked.size(); ++rank) {
    asked[rank] = without(asked[rank], taken);
    for (const auto& part : early)
      asked[rank].insert(asked[rank].end(), part[rank].begin(), part[rank].end());
    std::sort(asked[rank].begin(), asked[rank].end());
  }
  return asked;
}

}  // namespace braid::inline program
