// The memory of StepPrices: copies, state, and what a generation's cache finds.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/units.h"
#include "batching/cache_pages.h"
#include "pricing/memory.h"
#include "program/local_parts.h"
#include "program/placement.h"
#include "sim/step_prices.h"

namespace braid::inline sim {
namespace {

constexpr double kF32Bytes = 4;

GridPosition position_in(const ParamLayout& layout, size_t index) {
  return grid_position(layout_grid(layout), index);
}

// The first instruction of a call on a rank that is no communication.
int32_t first_of_call(const Program& program, DeviceId rank, CallId call) {
  const auto& list = program.ranks[rank.value].instructions;
  const auto found = std::find_if(list.begin(), list.end(), [&](const Instruction& i) {
    return i.call == call && !stands_between_calls(i.kind);
  });
  BRAID_CHECK(found != list.end(), "the rank is not in the mesh of the call");
  return static_cast<int32_t>(found - list.begin());
}

}  // namespace

int32_t StepPrices::home_copy(const RoleId& role) const {
  return program::home_copy(program_, role);
}

// Of the call that trains the role, else of any call that uses its home copy.
const CallCost& StepPrices::home_cost(const RoleId& role) const {
  const int32_t home = home_copy(role);
  const CallCost* found = nullptr;
  for (size_t i = 0; i < costs_.size(); ++i) {
    if (program_.calls[i].copy != home || !costs_[i]) continue;
    if (found == nullptr || program_.graph.calls[i].kind == CallKind::kTrainStep)
      found = &*costs_[i];
  }
  BRAID_CHECK(found != nullptr, "role " + role.value + " has no call");
  return *found;
}

// Frozen base weights that another role holds in the same layout, whole and in device memory.
bool StepPrices::borrows_memory(const WeightCopy& copy) const {
  const std::string& other = model_of(problem_, copy.role).shares_weights_with;
  if (other.empty()) return false;
  return std::any_of(program_.copies.begin(), program_.copies.end(), [&](const WeightCopy& lender) {
    return lender.home && lender.role.value == other && lender.layout == copy.layout &&
           lends_memory(program_, lender, copy);
  });
}

bool StepPrices::lives_on_host(const RoleState& state) const {
  return std::find(program_.states.begin(), program_.states.end(), state) != program_.states.end();
}

double StepPrices::state_bytes(const RoleState& state, DeviceId device) const {
  const ParamLayout& layout = program_.copies[home_copy(state.role)].layout;
  const auto index = place_in_mesh(layout, device);
  if (!index) return 0;
  const CallCost& cost = home_cost(state.role);
  return state.optimizer ? cost.optimizer_bytes(position_in(layout, *index).stage)
                         : cost.weight_bytes(*index);
}

// Layers of a device differ by their kinds: the ends of the model lie beside its first and last.
double StepPrices::moved_bytes(const Instruction& move, DeviceId device) const {
  const RoleState& state = program_.states[move.detail];
  const double all = state_bytes(state, device);
  if (move.layers.size() <= 0) return all;
  const ParamLayout& layout = program_.copies[home_copy(state.role)].layout;
  const GridPosition at = *place_in_grid(layout, device);
  const RoleModel& model = model_of(problem_, state.role);
  const RoleSpec* spec = find_role(program_.graph, state.role);
  double moved = 0, held = 0;
  for (const TensorKind& kind : tensor_kinds(model.spec, spec)) {
    const auto elements = static_cast<double>(held_elements(kind, layout, at).size());
    const bool end = kind.layer_begin == kind.layer_end;
    const int64_t beside = kind.first ? 0 : model.spec.layers - 1;  // of an end of the model
    for (const Interval& run : held_layers(kind, layout, model.spec.layers, at.stage)) {
      held += elements * static_cast<double>(run.size());
      const Interval found = end ? Interval{beside, beside + 1} : run;
      const int64_t common =
          std::min(found.end, move.layers.end) - std::max(found.begin, move.layers.begin);
      moved += elements * static_cast<double>(std::max<int64_t>(0, common));
    }
  }
  return held > 0 ? all * moved / held : 0;
}

double StepPrices::copy_bytes(int32_t index, DeviceId device) const {
  const WeightCopy& copy = program_.copies[index];
  const auto place = place_in_mesh(copy.layout, device);
  if (borrows_memory(copy) || !place) return 0;
  const RoleModel& model = model_of(problem_, copy.role);
  if (copy.home) return state_bytes({copy.role, false}, device);
  const RoleSpec* spec = find_role(program_.graph, copy.role);
  const auto kinds = tensor_kinds(model.spec, spec);
  const WeightCopy& home = program_.copies[home_copy(copy.role)];
  const int64_t layers = model.spec.layers;
  int64_t elements = elements_of(held_parts(kinds, layers, copy.layout, *place));
  if (!stays_resident(copy, problem_) && lends_memory(program_, home, copy))
    elements -= elements_of(alike_parts(kinds, layers, home.layout, copy.layout, device));
  return static_cast<double>(elements) * widths_of(model.precision).weight;
}

bool StepPrices::comes_for_calls(const RoleId& role) const {
  return problem_.maps_frozen && !changes(program_.graph, role);
}

// What is there before the step and stays.
void StepPrices::add_base_memory() {
  base_.resize(program_.ranks.size());
  for (size_t rank = 0; rank < base_.size(); ++rank) {
    const DeviceId device{static_cast<int32_t>(rank)};
    base_[rank][MemoryOwner::kFixed] = efficiencies_[rank].mem_fixed_gib * kGib;
    for (size_t i = 0; i < program_.copies.size(); ++i) {
      const WeightCopy& copy = program_.copies[i];
      if (!stays_resident(copy, problem_)) {
        if (static_cast<int32_t>(i) == program_.synced_copy)
          base_[rank][MemoryOwner::kCopies] += copy_bytes(program_.synced_copy, device);
        continue;
      }
      if (!(copy.home && lives_on_host({copy.role, false})) && !comes_for_calls(copy.role))
        base_[rank][copy.home ? MemoryOwner::kWeights : MemoryOwner::kCopies] +=
            copy_bytes(static_cast<int32_t>(i), device);
      if (copy.home && model_of(problem_, copy.role).keeps_average)
        base_[rank][MemoryOwner::kWeights] +=
            state_bytes({copy.role, false}, device) * kF32Bytes /
            widths_of(model_of(problem_, copy.role).precision).weight;
      if (copy.home && is_trained(program_.graph, copy.role) && !lives_on_host({copy.role, true}))
        base_[rank][MemoryOwner::kOptimizer] += state_bytes({copy.role, true}, device);
    }
  }
}

std::vector<bool> copies_at_begin(const Program& program) {
  std::vector<bool> out(program.copies.size(), false);
  if (program.synced_copy >= 0) out[program.synced_copy] = true;
  return out;
}

int32_t copy_filled_on(const Program& program, const Reallocation& reallocation, DeviceId device) {
  return place_in_mesh(program.copies[reallocation.copy].layout, device) ? reallocation.copy : -1;
}

// Bytes that are there when an instruction of the list begins, and what is fetched ahead of the
// next call while it runs.
double StepPrices::held_before(DeviceId device, int32_t instruction) const {
  const auto& list = program_.ranks[device.value].instructions;
  const CallId call = list[instruction].call;
  std::vector<bool> live = copies_at_begin(program_);
  double bytes = base_[device.value].total();
  const auto take_copy = [&](int32_t copy) {
    if (copy < 0 || live[copy] || stays_resident(program_.copies[copy], problem_)) return;
    live[copy] = true;
    bytes += copy_bytes(copy, device);
  };
  for (size_t i = 0; i < list.size(); ++i) {
    const bool before = static_cast<int32_t>(i) <= instruction;
    const Instruction& now = list[i];
    const bool computes = !stands_between_calls(now.kind);
    if (!before && computes && now.call != call) break;
    const bool may_start = std::all_of(now.after.begin(), now.after.end(),
                                       [&](InstructionId id) { return id.value <= instruction; });
    if (now.kind == OpKind::kLoad && (before || may_start)) bytes += moved_bytes(now, device);
    if (!before) continue;
    if (now.kind == OpKind::kOffload) bytes -= moved_bytes(now, device);
    if (now.kind == OpKind::kReallocate)
      take_copy(copy_filled_on(program_, program_.reallocations[now.detail], device));
    if (now.kind == OpKind::kRelease) {
      live[now.detail] = false;
      bytes -= copy_bytes(now.detail, device);
    }
    if (computes) take_copy(program_.calls[now.call.value].copy);
  }
  return bytes;
}

double StepPrices::limit_bytes(DeviceId device) const {
  return usable_bytes(device_memory_bytes(problem_, gpu_of(problem_.cluster, device)),
                      efficiencies_[device.value]);
}

// At least the longest request, so that running out of memory shows in the trace.
int64_t StepPrices::cache_budget(CallId id, int dp_rank,
                                 const std::vector<BatchRequest>& requests) const {
  const CallCost& cost = this->cost(id);
  if (cost.strategy().kv_budget_tokens > 0) return cost.strategy().kv_budget_tokens;
  int64_t longest = 1;
  for (const BatchRequest& request : requests)
    longest = std::max(longest, request.prompt + request.response);
  longest = (longest / kPageTokens + 2) * kPageTokens;
  double free = HUGE_VAL;
  const CallPlacement& where = program_.calls[id.value];
  for (size_t i = 0; i < where.mesh.devices.size(); ++i) {
    if (grid_position(where.strategy, i).dp_rank != dp_rank) continue;
    const DeviceId device = where.mesh.devices[i];
    const double reserve = std::sqrt(efficiency(device).mem_reserve_factor);
    const double taken = held_before(device, first_of_call(program_, device, id)) +
                         cost.prefill_bytes(static_cast<double>(
                             engine_batch_tokens(problem_, options_.generate_batch_tokens)));
    free = std::min(free, limit_bytes(device) / reserve - taken);
  }
  const double tokens = kShareForCache * free / cost.cache_bytes_per_token();
  return std::max(longest, static_cast<int64_t>(std::max(tokens, 0.0)));
}

// Copies are of whole pages.
double StepPrices::begun_bytes(CallId id, int dp_rank) const {
  const auto known = prefixes_.find(id);
  const Partition& part = partition(id, begun_part(program_));
  double tokens = 0;
  if (known != prefixes_.end() && !part.begun.empty())
    for (const int32_t row : part.begun[dp_rank])
      tokens += static_cast<double>(pages_for(known->second[row]) * kPageTokens);
  return tokens * cost(id).cache_bytes_per_token();
}

// In pages: of the micro-batch with the most, or of as many as are on their way where a rank has
// several runs of layers, which each passes in turn.
double StepPrices::cached_bytes(CallId id, int dp_rank, SamplePart part) const {
  const auto known = prefixes_.find(id);
  if (known == prefixes_.end() || prefix_part(id, part) == PrefixPart::kNone) return 0;
  const std::vector<PartitionSample> whole = samples(id);
  const bool rest = prefix_part(id, part) == PrefixPart::kRest;
  const Strategy& strategy = program_.calls[id.value].strategy;
  const size_t open = strategy.interleave > 1 ? strategy.pp : 1;
  std::vector<int64_t> pages;
  int64_t most = 0;
  for (const SampleRows& rows : partition(id, part).minibatches.front().micro_batches[dp_rank]) {
    pages.push_back(0);
    for (const int32_t row : rows)
      if (known->second[row] > 0)
        pages.back() +=
            pages_for(rest ? whole[row].prompt + whole[row].response : known->second[row]);
    const auto first = pages.end() - static_cast<int64_t>(std::min(open, pages.size()));
    most = std::max(most, std::accumulate(first, pages.end(), int64_t{0}));
  }
  return static_cast<double>(most * kPageTokens) * cost(id).cache_bytes_per_token();
}

ReplicaRequests StepPrices::replica_requests(CallId call, int dp_rank, SamplePart part) const {
  if (const auto found = carried_.find(call); found != carried_.end())
    return found->second[dp_rank];
  ReplicaRequests out;
  out.requests = requests(call, dp_rank, part);
  const bool first = part == SamplePart::kAll || part == SamplePart::kEarly;
  out.budget_tokens =
      first ? cache_budget(call, dp_rank, out.requests) : later_budget(call, dp_rank, out.requests);
  if (of_hand_over(program_, call, part)) {
    out.most_rounds = handed_[hand_over_of(part)].rounds[dp_rank];
    out.count_s = counts_s_[hand_over_of(part)];
    const PricedCopies& copied = handed_[hand_over_of(part)].copied;
    out.told_after = copied.told_after;
    if (copied.told_after >= 0)
      out.told_s = cost(call).tally_s(told_ahead_bytes(std::ssize(lengths_.prompt)));
    if (!copied.rounds.empty()) out.copied_after = copied.rounds[dp_rank];
  }
  return out;
}

}  // namespace braid::inline sim
