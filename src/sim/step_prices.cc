#include "sim/step_prices.h"

#include <algorithm>
#include <numeric>

#include "pricing/rl_engine.h"
#include "program/computed_rows.h"
#include "program/residency.h"
#include "program/streamed_update.h"
#include "sim/carried_steps.h"
#include "sim/predicted_lengths.h"
#include "sim/priced_rows.h"
#include "sim/work_cuts.h"

namespace braid::inline sim {
namespace {

// What is not over of a count of what is left when the next one begins, of the counts in so many
// rounds: each passes beside the rounds between two of them.
double counts_s(double count_s, const BatchRound& round, int64_t before, double rounds_s) {
  const int64_t counts =
      (before + round.rounds) / kRoundsBetweenTallies - before / kRoundsBetweenTallies;
  if (counts == 0) return 0;
  const double beside_s = kRoundsBetweenTallies * rounds_s / static_cast<double>(round.rounds);
  return static_cast<double>(counts) * std::max(0.0, count_s - beside_s);
}

// What counts add to rounds, and what ranks tell each other beside one of them.
double told_s(const ReplicaRequests& work, const BatchRound& round, int64_t before,
              double rounds_s) {
  const double out = counts_s(work.count_s, round, before, rounds_s);
  if (work.told_after <= before || work.told_after > before + round.rounds) return out;
  const double beside_s = kRoundsBetweenTallies * rounds_s / static_cast<double>(round.rounds);
  return out + std::max(0.0, work.told_s - std::max(0.0, beside_s - work.count_s));
}

void add_link(DeviceId device, bool network, std::vector<int32_t>* ports) {
  ports->push_back(port_of(device, network ? TrackKind::kNetworkOut : TrackKind::kNvlinkOut));
  ports->push_back(port_of(device, network ? TrackKind::kNetworkIn : TrackKind::kNvlinkIn));
}

}  // namespace

std::array<int32_t, 2> message_ports(DeviceId from, DeviceId to, LinkKind link) {
  const bool network = link == LinkKind::kNetwork;
  return {port_of(from, network ? TrackKind::kNetworkOut : TrackKind::kNvlinkOut),
          port_of(to, network ? TrackKind::kNetworkIn : TrackKind::kNvlinkIn)};
}

std::vector<int32_t> exchange_ports(DeviceId rank, const ExchangePrice& price) {
  std::vector<int32_t> ports;
  if (price.inside) add_link(rank, false, &ports);
  if (price.network) add_link(rank, true, &ports);
  return ports;
}

std::vector<int32_t> group_ports(const Cluster& cluster, const std::vector<DeviceId>& members) {
  std::vector<int32_t> ports;
  for (const DeviceId device : members) {
    bool near = false, far = false;
    for (const DeviceId other : members)
      (link_between(cluster, device, other).kind == LinkKind::kNetwork ? far : near) |=
          other != device;
    if (near) add_link(device, false, &ports);
    if (far) add_link(device, true, &ports);
  }
  return ports;
}

LinkKind farthest_link(const Cluster& cluster, DeviceId device,
                       const std::vector<DeviceId>& others) {
  const bool far = std::any_of(others.begin(), others.end(), [&](DeviceId other) {
    return link_between(cluster, device, other).kind == LinkKind::kNetwork;
  });
  return far ? LinkKind::kNetwork : LinkKind::kNvlink;
}

StepPrices::StepPrices(const Program& program, const PlanningProblem& problem,
                       const Calibration& calibration, const SimOptions& options,
                       SampleLengths lengths)
    : program_(program),
      problem_(problem),
      calibration_(calibration),
      options_(options),
      lengths_(std::move(lengths)) {}

Status StepPrices::prepare() {
  const size_t calls = program_.graph.calls.size(), ranks = program_.ranks.size();
  costs_.resize(calls);
  for (size_t i = 0; i < calls; ++i) {
    const CallId id{static_cast<int32_t>(i)};
    if (!uses_model(program_.graph.calls[i])) continue;
    BRAID_ASSIGN(costs_[i], CallCost::make(program_, id, problem_, calibration_));
  }
  for (size_t rank = 0; rank < ranks; ++rank) {
    const GpuSpec& gpu = gpu_of(problem_.cluster, DeviceId{static_cast<int32_t>(rank)});
    const bool as_before =
        rank > 0 && gpu == gpu_of(problem_.cluster, DeviceId{static_cast<int32_t>(rank) - 1});
    efficiencies_.push_back(as_before ? efficiencies_.back()
                                      : family_efficiency(calibration_, gpu, Precision::kBf16,
                                                          problem_.train_engine,
                                                          problem_.generate_engine));
  }
  add_base_memory();
  partition_generations();
  for (size_t i = 0; i < calls; ++i)
    if (program_.graph.calls[i].carried_steps > 0) take_carried(CallId{static_cast<int32_t>(i)});
  if (program_.scoring.is_on()) take_hand_over();
  if (program_.scoring.is_on()) find_prefixes();
  partition_calls();
  find_computed();
  price_exchanges();
  return ok_status();
}

void StepPrices::price_exchanges() {
  PricedRows rows(*this);
  const ExchangeLinks links = {
      [this](DeviceId from, DeviceId to, double bytes) { return link(from, to, bytes); },
      [this](OpKind kind, double bytes) {
        return everyone_s(
            kind == OpKind::kAllReduce ? CollectiveOp::kAllReduce : CollectiveOp::kAllGather,
            bytes);
      }};
  exchanges_ =
      sim::price_exchanges(program_, problem_.workload, lengths_, begun_lens(), rows, links);
  for (size_t entry = 0; entry < exchanges_.size(); ++entry) {
    const CallId call = program_.exchanges[entry].samples_of();
    const double draws = draws_of(problem_, program_.graph.calls[call.value].name);
    for (ExchangePrice& price : exchanges_[entry])
      price.seconds *= draws, price.sent *= draws, price.received *= draws;
  }
}

// What the replicas of generations draw.
void StepPrices::partition_generations() {
  partitions_.resize(program_.graph.calls.size());
  if (program_.predicts_lengths)
    predicted_ = predicted_lengths(lengths_, problem_.workload.samples_per_prompt,
                                   options_.length_correlation, options_.seed);
  for (size_t i = 0; i < partitions_.size(); ++i) {
    const CallPlacement& where = program_.calls[i];
    if (program_.graph.calls[i].kind != CallKind::kGenerate) continue;
    if (!program_.predicts_lengths) {
      partitions_[i].owned = partition_requests(where.samples, where.strategy);
      continue;
    }
    std::vector<int64_t> of_call;
    for (int64_t row = 0; row < where.samples; ++row)
      of_call.push_back(predicted_[sample_of(lengths_, where.samples, row)]);
    const int64_t group = std::max<int64_t>(1, where.samples / problem_.workload.prompts);
    partitions_[i].owned = partition_requests(of_call, group, where.strategy);
  }
}

BatchOptions StepPrices::engine_options(CallId generate) const {
  BatchOptions out = batch_options(problem_, cost(generate).strategy(), options_);
  out.longest_first = program_.predicts_lengths;
  return out;
}

// Replicas that end before others wait for them, so their pace has the mean of what all take.
void StepPrices::take_carried(CallId id) {
  const CallPlacement& where = program_.calls[id.value];
  const CallCost& cost = this->cost(id);
  SampleRows rows(lengths_.prompt.size());
  std::iota(rows.begin(), rows.end(), 0);
  const auto any = requests_of(problem_, lengths_, std::ssize(rows), rows);
  std::vector<std::vector<double>> seconds;
  std::vector<ReplicaRequests>& replicas = carried_[id];
  double longest_s = 0;
  for (int replica = 0; replica < where.strategy.dp; ++replica) {
    BatchOptions engine = engine_options(id);
    engine.kv_budget_tokens = cache_budget(id, replica, any);
    const CarriedSteps steps = carrying_steps(problem_, program_.graph.calls[id.value],
                                              where.strategy, replica, lengths_, engine);
    std::vector<double>& of_replica = seconds.emplace_back();
    for (const CarriedStep& step : steps.usual)
      of_replica.push_back(rounds_seconds(cost, step.rounds));
    const CarriedStep& shown = steps.fullest();
    const double mean_s = mean_seconds({of_replica});
    longest_s = std::max(longest_s, mean_s);
    int64_t rounds = 0;
    for (const BatchRound& round : shown.rounds) rounds += round.rounds;
    replicas.push_back({shown.requests, engine.kv_budget_tokens, rounds,
                        mean_s / rounds_seconds(cost, shown.rounds)});
  }
  const double all_s = mean_seconds(seconds);
  for (ReplicaRequests& replica : replicas) replica.pace *= all_s / longest_s;
}

// How the generation's replicas are whenever it is handed over.
void StepPrices::take_hand_over() {
  const CallId id = program_.scoring.generate;
  const CallPlacement& where = program_.calls[id.value];
  const std::vector<SampleRows>& owned = partitions_[id.value].owned;
  std::vector<ReplicaWork> replicas;
  for (int replica = 0; replica < where.strategy.dp; ++replica) {
    ReplicaWork& work = replicas.emplace_back();
    work.rows = owned[replica];
    work.requests = requests(id, replica);
    work.options = engine_options(id);
    work.options.kv_budget_tokens = cache_budget(id, replica, work.requests);
  }
  handed_ = hand_overs_of(std::move(replicas), program_.scoring,
                          [&](int replica, const std::vector<BatchRequest>& left) {
                            return later_budget(id, replica, left);
                          });
  const std::vector<HandOver> handed = handed_alone();
  generated_[SamplePart::kAll] = generated_rows(handed, SamplePart::kAll);
  for (const SamplePart part : parts_of_call(program_, id))
    generated_[part] = generated_rows(handed, part);
  told_.emplace_back();
  counts_s_.push_back(cost(id).tally_s(kTallyBytes));
  for (size_t at = 1; at < handed.size(); ++at) {
    told_.push_back(progress_told(where, handed[at - 1], std::ssize(program_.ranks)).messages);
    counts_s_.push_back(busiest_port_s(counts_told(where, handed[at - 1])));
  }
}

std::vector<HandOver> StepPrices::handed_alone() const {
  std::vector<HandOver> out;
  for (const PricedHandOver& each : handed_) out.push_back(each.handed);
  return out;
}

std::vector<int64_t> StepPrices::begun_lens() const {
  std::vector<int64_t> out(lengths_.prompt.size(), 0);
  if (handed_.empty()) return out;
  const HandOver& last = handed_.back().handed;
  for (size_t i = 0; i < last.late.size(); ++i) out[last.late[i]] = last.produced[i];
  return out;
}

StepParts StepPrices::step_parts() const {
  StepParts out;
  out.handed = handed_alone();
  if (!program_.early_update.is_on()) return out;
  const CallId update = program_.early_update.update;
  const Call& entry = program_.graph.calls[update.value];
  const CallPlacement& where = program_.calls[update.value];
  const std::vector<PartitionSample> learnt = samples(update);
  out.scored = scored_in_parts(program_,
                               {update, learnt, where.strategy, partition_options(problem_, entry)},
                               where.samples);
  return out;
}

// A what-if knows the whole samples at the hand-over.
void StepPrices::find_prefixes() {
  std::vector<HandOver> handed = handed_alone();
  for (size_t i = 0; i < handed.back().late.size() && options_.free_prefixes; ++i)
    handed.back().produced[i] = lengths_.response[handed.back().late[i]];
  for (const CallId id : program_.scoring.scorers) {
    if (!options_.free_prefixes && !scores_beginnings(program_, id)) continue;
    std::vector<int64_t> tokens = prefixes_scored(program_, id, samples(id), handed);
    if (!tokens.empty()) prefixes_[id] = std::move(tokens);
  }
}

// What comes at no cost is in no list.
PrefixPart StepPrices::prefix_part(CallId call, SamplePart part) const {
  if (!options_.free_prefixes) return program::prefix_part(program_, call, part);
  const bool rest = prefixes_.count(call) > 0 && part > begun_part(program_);
  return rest ? PrefixPart::kRest : PrefixPart::kNone;
}

void StepPrices::partition_calls() {
  const StepParts step = step_parts();
  for (size_t i = 0; i < partitions_.size(); ++i) {
    const Call& call = program_.graph.calls[i];
    const CallId id{static_cast<int32_t>(i)};
    if (!uses_model(call) || call.kind == CallKind::kGenerate) continue;
    const bool begins_early = braid::begins_early(program_, id),
               streamed = is_streamed(program_, id);
    const bool known = begins_early || streamed;
    if (!runs_in_parts(program_, id) || known) partitions_[i] = partition_anew(id);
    if (!runs_in_parts(program_, id)) continue;
    std::vector<Partition> parts;
    for (const SamplePart part : parts_of_call(program_, id)) {
      // What a list has of beginnings its rule knows by itself.
      const std::vector<PartitionSample> all =
          options_.free_prefixes ? samples(id, part) : samples(id);
      const PartitionedCall of{id, all, program_.calls[i].strategy,
                               partition_options(problem_, call)};
      parts.push_back(partition_part(program_, of, part, step, known ? &partitions_[i] : nullptr));
      parts_[{id, part}] = parts.back();
    }
    if (!begins_early) partitions_[i] = streamed ? joined_streamed(parts) : joined(parts);
  }
}

const Partition& StepPrices::partition(CallId call, SamplePart part) const {
  if (part == SamplePart::kAll) return partitions_[call.value];
  return parts_.at({call, part});
}

// By data-parallel rank.
const std::vector<SampleRows>& StepPrices::owned(CallId id, SamplePart part) const {
  const bool handed = !handed_.empty() && id == program_.scoring.generate;
  return handed ? generated_.at(part) : partition(id, part).owned;
}

std::vector<SampleRows> StepPrices::worked_on(CallId id, SamplePart part) const {
  const int64_t samples = program_.calls[id.value].samples;
  return rows_by_rank(program_, id, samples, owned(id, part));
}

std::vector<SampleRows> StepPrices::scored(CallId id) const {
  if (program_.graph.calls[id.value].kind != CallKind::kReward) return {};
  std::vector<int64_t> groups;
  for (const PartitionSample& sample : samples(id)) groups.push_back(sample.group.value);
  std::vector<SampleRows> asked = scored_by_rank(
      program_, id, groups, owned(asked_beside(program_.graph, id), SamplePart::kAll));
  if (!program_.scoring.streamed.has(id)) return asked;
  std::vector<std::vector<SampleRows>> early;
  for (const SamplePart part : parts_of_call(program_, id))
    if (of_hand_over(program_, id, part)) early.push_back(compared_early(part));
  return asked_with_early(std::move(asked), early);
}

std::vector<SampleRows> StepPrices::compared_early(SamplePart part) const {
  const CallId update = program_.scoring.streamed.update;
  std::vector<int64_t> groups;
  for (const PartitionSample& sample : samples(update)) groups.push_back(sample.group.value);
  return program::compared_early(program_, groups, partition(update, part));
}

// Whether it is a part of a call without a model whose samples an update begins with.
bool StepPrices::is_compared_early(CallId id, SamplePart part) const {
  return !uses_model(program_.graph.calls[id.value]) && of_hand_over(program_, id, part);
}

// Rows of a call with fewer samples (groups that are dropped) as samples of the step.
std::vector<SampleRows> StepPrices::in_step(CallId id, std::vector<SampleRows> rows) const {
  const auto all = static_cast<int64_t>(lengths_.prompt.size());
  for (SampleRows& of_rank : rows)
    for (int32_t& row : of_rank)
      row = static_cast<int32_t>(row * all / program_.calls[id.value].samples);
  return rows;
}

// A call that reads what another computes comes behind it.
void StepPrices::find_computed() {
  for (int32_t i = static_cast<int32_t>(program_.graph.calls.size()); i-- > 0;)
    if (program_.graph.calls[i].kind == CallKind::kCompute)
      computed_[CallId{i}] = computed(CallId{i});
}

std::vector<SampleRows> StepPrices::computed(CallId id) const {
  const std::vector<PartitionSample> own = samples(id);
  SampleRows rows(own.size());
  std::iota(rows.begin(), rows.end(), 0);
  rows = in_step(id, {rows}).front();
  std::vector<int64_t> groups(lengths_.prompt.size(), -1);
  for (size_t i = 0; i < own.size(); ++i) groups[rows[i]] = own[i].group.value;
  std::vector<SampleRows> out;
  for (const ComputedRows& of_rank :
       computed_by_rank(program_, id, rows, groups,
                        [&](CallId reader) { return read_rows(reader, SamplePart::kAll); }))
    out.push_back(all_of(of_rank));
  return out;
}

std::vector<SampleRows> StepPrices::written_rows(CallId id, SamplePart part) const {
  if (is_compared_early(id, part)) return compared_early(part);
  if (program_.graph.calls[id.value].kind == CallKind::kCompute) return computed_.at(id);
  return in_step(id, written_by_rank(program_, id, worked_on(id, part), scored(id)));
}

std::vector<SampleRows> StepPrices::read_rows(CallId id, SamplePart part) const {
  if (is_compared_early(id, part)) return compared_early(part);
  if (program_.graph.calls[id.value].kind == CallKind::kCompute) return computed_.at(id);
  std::vector<SampleRows> rows = worked_on(id, part);
  if (prefix_part(id, part) == PrefixPart::kBeginnings)
    rows = rows_by_rank(program_, id, program_.calls[id.value].samples,
                        rows_read(partition(id, part)));
  return in_step(id, read_by_rank(program_, id, std::move(rows), scored(id)));
}

std::vector<SampleRows> StepPrices::told_rows(CallId id) const {
  return in_step(id, on_heads(program_, id, owned(id, SamplePart::kAll)));
}

// A collective of all ranks.
double StepPrices::first_hand_over_s() const {
  const int64_t numbers = std::ssize(lengths_.prompt) * handed_numbers(program_.scoring);
  return everyone_s(CollectiveOp::kAllReduce, static_cast<double>(progress_bytes(numbers)));
}

// Messages that begin together: those of one port follow each other.
double StepPrices::busiest_port_s(const std::vector<ToldMessage>& messages) const {
  std::map<int32_t, double> ports;
  double out = 0;
  for (const ToldMessage& message : messages) {
    const LinkTime time = link(message.from, message.to, static_cast<double>(message.bytes()));
    for (const int32_t port : message_ports(message.from, message.to, time.link))
      out = std::max(out, ports[port] += time.seconds);
  }
  return out;
}

double StepPrices::copy_bytes(const CacheCopy& copy) const {
  return static_cast<double>(copy.tokens) * cost(program_.scoring.generate).cache_bytes_per_token();
}

std::vector<double> StepPrices::moved_messages(size_t at, size_t move) const {
  const MovedSample& moved = handed_[at].moved[move];
  return moved_sample(moved.produced, moved.cached,
                      cost(program_.scoring.generate).cache_bytes_per_token());
}

std::vector<PartitionSample> StepPrices::samples(CallId call) const {
  return partition_input(problem_, lengths_, program_.graph.calls[call.value]);
}

// Epochs after the first are simulated with its mini-batches.
Partition StepPrices::partition_anew(CallId id) const {
  const Call& call = program_.graph.calls[id.value];
  Partition out = partition_samples(samples(id), program_.calls[id.value].strategy,
                                    partition_options(problem_, call));
  if (call.kind != CallKind::kTrainStep) return out;
  if (options_.idle_calls.count(call.name) > 0) out.minibatches.clear();
  const size_t each = out.minibatches.size();
  for (int64_t epoch = 1; epoch < problem_.workload.epochs; ++epoch)
    for (size_t i = 0; i < each; ++i) {
      out.minibatches.push_back(out.minibatches[i]);
      out.minibatches.back().epoch = epoch;
    }
  return out;
}

std::vector<PartitionSample> StepPrices::samples(CallId call, SamplePart part) const {
  const auto known = prefixes_.find(call);
  if (known == prefixes_.end()) return samples(call);
  return samples_of_part(samples(call), known->second, prefix_part(call, part));
}

MicroBatch StepPrices::micro_batch(CallId call, const SampleRows& rows,
                                   const std::vector<PartitionSample>& samples,
                                   SamplePart part) const {
  const auto known = prefixes_.find(call);
  const PrefixPart what = prefix_part(call, part);
  const bool cached =
      what != PrefixPart::kNone && known != prefixes_.end() && is_cached(rows, known->second);
  std::vector<PackedLength> lengths =
      packed_lengths(rows, samples, problem_.workload.share_prompts && !cached);
  if (cached && what == PrefixPart::kRest) add_prefixes(rows, known->second, &lengths);
  return cost(call).micro_batch(lengths);
}

double StepPrices::update_s(const Expansion& ops, const Op& op) const {
  const CallCost& cost = this->cost(ops.call);
  return cost.op_s(ops, op, {}) + cost.step_host_s();
}

// The last backward of the first mini-batch on the same stage of the first data-parallel rank.
double StepPrices::window_s(const Expansion& ops, const Partition& partition) const {
  const CallPlacement& where = program_.calls[ops.call.value];
  const GridPosition first{0, 0, ops.at.stage};
  const Expansion of_first =
      expand(program_, ops.call, where.mesh.devices[mesh_index(where.strategy, first)], partition);
  const std::vector<PartitionSample> samples = this->samples(ops.call);
  const Op* last = nullptr;
  for (const Op& op : of_first.ops)
    if (op.kind == OpKind::kBackward && op.minibatch == 0) last = &op;
  if (last == nullptr) return 0;
  const SampleRows& rows = partition.minibatches[0].micro_batches[0][last->micro_batch];
  const CallCost& cost = this->cost(ops.call);
  return cost.op_s(of_first, *last, cost.pass_prices(micro_batch(ops.call, rows, samples)));
}

std::vector<double> StepPrices::op_seconds(const Expansion& ops, const Partition& partition,
                                           SamplePart part) const {
  const CallCost& cost = this->cost(ops.call);
  const std::vector<PartitionSample> samples = this->samples(ops.call, part);
  const double window = program_.graph.calls[ops.call.value].kind == CallKind::kTrainStep
                            ? window_s(ops, partition)
                            : 0;
  std::vector<double> out;
  double left_s = window;
  for (const Op& op : ops.ops) {
    if (op.kind == OpKind::kZero) left_s = window;
    if (op.kind == OpKind::kUpdate) {
      out.push_back(update_s(ops, op));
    } else if (op.kind == OpKind::kForward || op.kind == OpKind::kBackward) {
      const SampleRows& rows =
          partition.minibatches[op.minibatch].micro_batches[ops.at.dp_rank][op.micro_batch];
      const MicroBatch batch = micro_batch(ops.call, rows, samples, part);
      out.push_back(cost.op_s(ops, op, cost.pass_prices(batch)));
    } else {
      out.push_back(cost.op_s(ops, op, {}, &left_s));
    }
  }
  return out;
}

double StepPrices::host_call_s(CallId call, DeviceId rank) const {
  const Call& entry = program_.graph.calls[call.value];
  if (entry.kind == CallKind::kFollow)  // both are read, one is written
    return 3 * state_bytes({RoleId{entry.function}, false}, rank) /
           (gpu_of(problem_.cluster, rank).hbm_gbytes_per_s * 1e9 * efficiency(rank).stream_share);
  const bool fetch = entry.kind == CallKind::kFetch;
  return fetch && generates(program_.graph) ? efficiency(rank).rl_step_host_s : 0;
}

std::vector<BatchRequest> StepPrices::requests(CallId call, int dp_rank, SamplePart part) const {
  if (part != SamplePart::kAll && part != SamplePart::kEarly)
    return handed_[hand_over_of(part) - 1].left[dp_rank];
  const int64_t samples = program_.calls[call.value].samples;
  const SampleRows& rows = partitions_[call.value].owned[dp_rank];
  std::vector<BatchRequest> out = requests_of(problem_, lengths_, samples, rows);
  for (size_t i = 0; i < out.size() && !predicted_.empty(); ++i)
    out[i].predicted = predicted_[sample_of(lengths_, samples, rows[i])];
  return out;
}

int64_t StepPrices::run_rounds(
    CallId call, const ReplicaRequests& work,
    const std::function<void(const BatchRound&, double seconds, double agreement_s)>& visit) const {
  const CallCost& cost = this->cost(call);
  BatchOptions options = engine_options(call);
  options.kv_budget_tokens = work.budget_tokens;
  const double agreement_s = work.pace * cost.agreements_s();
  int64_t before = 0;
  const auto priced = [&](const BatchRound& round) {
    const auto agreements = static_cast<double>(agreements_in(before, round.rounds, round.due));
    double seconds = work.pace * cost.rounds_s(round);
    if (work.count_s > 0) seconds += told_s(work, round, before, seconds);
    before += round.rounds;
    visit(round, seconds, agreements * agreement_s);
  };
  if (work.most_rounds < 0) return run_batches(work.requests, options, priced);
  run_batches_until(work.requests, options, work.most_rounds, priced);
  return before;
}

// Of all ranks of the job.
double StepPrices::everyone_s(CollectiveOp op, double bytes) const {
  const Node& node = problem_.cluster.nodes.front();
  const auto ranks = static_cast<int>(program_.ranks.size());
  return collective_s(op, bytes,
                      make_group(node.gpu, ranks, 1, node.devices, node.nic_gbps_per_gpu),
                      efficiencies_.front());
}

LinkTime StepPrices::link(DeviceId from, DeviceId to, double bytes) const {
  return link_time(problem_.cluster, from, to, bytes, efficiency(from));
}

// Whether training has changed the state since it came from the host, where else its copy is valid.
bool StepPrices::changed_since_load(DeviceId rank, int32_t index) const {
  const auto& list = program_.ranks[rank.value].instructions;
  const RoleState& state = program_.states[list[index].detail];
  for (int32_t i = index; i-- > 0;) {
    const Instruction& before = list[i];
    if (before.kind == OpKind::kLoad && before.detail == list[index].detail) return false;
    const Call& call = program_.graph.calls[before.call.value];
    if (before.kind == OpKind::kRegionBegin && call.kind == CallKind::kTrainStep &&
        call.role == state.role)
      return true;
  }
  return false;
}

StepPrices::StateMove StepPrices::state_move(DeviceId rank, int32_t index) const {
  const Instruction& move = program_.ranks[rank.value].instructions[index];
  const RoleState& state = program_.states[move.detail];
  if (move.kind != OpKind::kLoad && !changed_since_load(rank, index)) return {};
  const double bytes = moved_bytes(move, rank);
  return {bytes, home_cost(state.role).host_copy_seconds(bytes)};
}

std::vector<StepPrices::LayerWait> StepPrices::layer_waits(const Instruction& first, DeviceId rank,
                                                           const OpBody& body) const {
  std::vector<LayerWait> out;
  for (const InstructionId load : first.within) {
    const Instruction& move = program_.ranks[rank.value].instructions[load.value];
    const auto share = share_before(body, move.layers);
    if (share) out.push_back({*share, load});
  }
  std::sort(out.begin(), out.end(), [](const LayerWait& a, const LayerWait& b) {
    return std::pair(a.share, a.load) < std::pair(b.share, b.load);
  });
  return out;
}

std::vector<InstructionId> StepPrices::update_waits(const Instruction& first, DeviceId rank) const {
  std::vector<InstructionId> out;
  for (const InstructionId load : first.within) {
    const Instruction& move = program_.ranks[rank.value].instructions[load.value];
    if (program_.states[move.detail].optimizer) out.push_back(load);
  }
  return out;
}

}  // namespace braid::inline sim
