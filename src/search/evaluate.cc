#include "search/evaluate.h"

#include <algorithm>
#include <cmath>

#include "base/units.h"

namespace braid::inline search {
namespace {

bool covers(const PlanOption& option, int32_t device) {
  return option.first <= device && device < option.end;
}

// Fields arrive from other devices unless all producers ran on the same ones.
double exchange_s(const PlanSpace& space, const Assignment& plan, int call) {
  const CallSpace& reader = space.calls[call];
  const PlanOption& to = *plan.option[call];
  double longest = 0;
  for (const int before : reader.after) {
    const PlanOption* from = plan.option[before];
    if (from == nullptr || (from->first == to.first && from->end == to.end)) continue;
    longest = std::max(longest, space.rates[to.rates].latency_s + reader.input_bytes / to.replicas /
                                                                      field_rate(space, *from, to));
  }
  return reader.input_bytes > 0 ? longest : 0;
}

// Loads and unloads of a role's state around one of its calls; they take as long both ways.
double residency_s(const PlanSpace& space, const Assignment& plan, int call) {
  const int role_index = space.calls[call].role;
  const RoleSpace& role = space.roles[role_index];
  if (plan.stay[role_index] < 0) return 0;
  const Stay stay = role.stays[plan.stay[role_index]];
  const PlanOption* home = plan.option[role.home];
  if (home == nullptr) return 0;
  double bytes = 0;
  if (stay.weights_on_host) {
    const bool comes = stay.after_each_call || call == role.calls.front();
    const bool leaves = stay.after_each_call || call == role.calls.back();
    // Weights that training changes go back, others are on the host already.
    const bool changed = role.trained && (stay.after_each_call ? call == role.home : leaves);
    bytes += home->weight_bytes * ((comes ? 1 : 0) + (changed ? 1 : 0));
  }
  if (stay.optimizer_on_host && call == role.home) bytes += 2 * home->optimizer_bytes;
  return bytes / space.rates[home->rates].host;
}

// Whether weights that live on the host stay on the devices between two calls of their role.
bool lingers(const RoleSpace& role, const Stay& stay) {
  return stay.weights_on_host && !stay.after_each_call && role.calls.size() > 1;
}

bool waits_loaded(const RoleSpace& role, const Stay& stay, int call) {
  return lingers(role, stay) && role.calls.front() <= call && call <= role.calls.back();
}

// What the weights of a role and its optimizer keep on a device of its home all the time.
double resident_bytes(const PlanSpace& space, const Assignment& plan, int role_index) {
  const RoleSpace& role = space.roles[role_index];
  const PlanOption& home = *plan.option[role.home];
  const Stay stay = role.stays[plan.stay[role_index]];
  double weights = stay.weights_on_host ? 0 : home.weight_bytes;
  if (role.shares >= 0 && weights > 0) {
    const PlanOption* other = plan.option[space.roles[role.shares].home];
    const bool same = other == nullptr || (other->first == home.first && other->end == home.end &&
                                           other->tp == home.tp && other->pp == home.pp &&
                                           other->shards == home.shards);
    if (same) weights = 0;
  }
  return weights + (stay.optimizer_on_host ? 0 : home.optimizer_bytes);
}

// Copies in another layout than the home's that no training makes stale: they stay where they are.
double staying_copies_bytes(const Assignment& plan, const RoleSpace& role, int32_t device) {
  const PlanOption* home = plan.option[role.home];
  double bytes = 0;
  for (size_t i = 0; i < role.calls.size() && home != nullptr; ++i) {
    const PlanOption* option = plan.option[role.calls[i]];
    if (option == nullptr || option->layout == home->layout || !covers(*option, device)) continue;
    const bool known = std::any_of(role.calls.begin(), role.calls.begin() + static_cast<int64_t>(i),
                                   [&](int before) {
                                     const PlanOption* other = plan.option[before];
                                     return other != nullptr && other->layout == option->layout;
                                   });
    if (!known) bytes += option->weight_bytes;
  }
  return bytes;
}

// What one call adds on a device.
double running_bytes(const PlanSpace& space, const Assignment& plan, int call, int32_t device) {
  const int role_index = space.calls[call].role;
  const RoleSpace& role = space.roles[role_index];
  const PlanOption& option = *plan.option[call];
  const PlanOption* home = plan.option[role.home];
  double bytes = option.transient_bytes;
  if (home == nullptr) return bytes;
  if (option.layout != home->layout && !role.copies_stay) bytes += option.weight_bytes;
  if (plan.stay[role_index] < 0 || !covers(*home, device)) return bytes;
  const Stay stay = role.stays[plan.stay[role_index]];
  if (stay.weights_on_host) bytes += home->weight_bytes;
  if (stay.optimizer_on_host && call == role.home) bytes += home->optimizer_bytes;
  return bytes;
}

// Weights on a device that wait for a later call of their role while this call of another runs.
double waiting_bytes(const PlanSpace& space, const Assignment& plan, int call, int32_t device) {
  double bytes = 0;
  for (size_t r = 0; r < space.roles.size(); ++r) {
    const RoleSpace& role = space.roles[r];
    const PlanOption* home = plan.option[role.home];
    if (plan.stay[r] < 0 || home == nullptr || space.calls[call].role == static_cast<int>(r))
      continue;
    if (waits_loaded(role, role.stays[plan.stay[r]], call) && covers(*home, device))
      bytes += home->weight_bytes;
  }
  return bytes;
}

struct Ends {
  std::vector<int64_t> start_us, end_us;  // by call
  std::vector<int64_t> free_us;           // by device
};

// What a call waits for beyond its devices, from the begin of the segment.
struct Arrival {
  int64_t fields_us = 0;   // on the first stage
  int64_t home_us = 0;     // the devices that send its weights are ready to
  int64_t weights_us = 0;  // to bring them, once the devices are free
  int64_t state_us = 0;    // from the host and back, with the call
};

Arrival arrival_of(const PlanSpace& space, const Assignment& plan, int call, Moves moves) {
  const RoleSpace& role = space.roles[space.calls[call].role];
  const PlanOption* home = plan.option[role.home];
  Arrival arrival;
  if (moves == Moves::kNone) return arrival;
  arrival.fields_us = to_us(exchange_s(space, plan, call));
  arrival.state_us = to_us(residency_s(space, plan, call));
  if (home != nullptr && call != role.home && moves == Moves::kPriced)
    arrival.weights_us = move_us(space, role, *home, *plan.option[call]);
  return arrival;
}

// Runs an option whose fields are there at fields_us; returns its end. Each stage begins when all
// its devices are free.
int64_t run_option(const PlanSpace& space, const PlanOption& option, const Arrival& arrival,
                   Ends& ends) {
  const int32_t each = option.devices() / option.pp;
  const StageSpan* spans = &space.spans[option.spans];
  int64_t late_us = INT64_MIN;  // against the ends of StageSpan
  const auto devices_of = [&](int32_t stage) { return &ends.free_us[option.first + stage * each]; };
  const auto begin_of = [&](int32_t stage) {
    const int64_t* free_us = devices_of(stage);
    const int64_t room = *std::max_element(free_us, free_us + each);
    const int64_t begin = std::max(room, arrival.home_us) + arrival.weights_us;
    return stage == 0 ? std::max(begin, arrival.fields_us) : begin;
  };
  const auto set_end = [&](int32_t stage) {
    const int64_t end = spans[stage].end_us + late_us + arrival.state_us;
    std::fill_n(devices_of(stage), each, end);
    return end;
  };
  int64_t latest = 0;
  for (int32_t stage = 0; stage < option.pp; ++stage) {
    late_us = std::max(late_us, begin_of(stage) + spans[stage].need_us - spans[stage].end_us);
    if (!option.joint) latest = std::max(latest, set_end(stage));
  }
  for (int32_t stage = 0; stage < option.pp && option.joint; ++stage)
    latest = std::max(latest, set_end(stage));
  return latest;
}

// Whether the home of a role gives a call its weights in its devices' own time: slices (ZeRO-3) on
// either side come together while nothing is computed.
bool gives_in_own_time(const RoleSpace& role, const PlanOption& home, const PlanOption& to) {
  return role.trained && home.layout != to.layout && (home.shards > 1 || to.shards > 1);
}

// When the devices of another layout that send a call its weights are ready to, where they must be
// free for it: they load what stays on the host, or have slices to move.
int64_t home_us(const PlanSpace& space, const Assignment& plan, int call, const Ends& ends) {
  const int role_index = space.calls[call].role;
  const RoleSpace& role = space.roles[role_index];
  const PlanOption* home = plan.option[role.home];
  if (home == nullptr || home->layout == plan.option[call]->layout) return 0;
  const bool loads =
      plan.stay[role_index] >= 0 && role.stays[plan.stay[role_index]].weights_on_host;
  if (!loads && !gives_in_own_time(role, *home, *plan.option[call])) return 0;
  const auto free_us = ends.free_us.begin();
  return *std::max_element(free_us + home->first, free_us + home->end) +
         (loads ? to_us(residency_s(space, plan, call)) : 0);
}

// The devices of a call's home compute nothing until those of the call are free too, and its
// weights have come.
void hold_home(const PlanSpace& space, const Assignment& plan, int call, const Arrival& arrival,
               Ends& ends) {
  const RoleSpace& role = space.roles[space.calls[call].role];
  const PlanOption *home = plan.option[role.home], *to = plan.option[call];
  if (home == nullptr || !gives_in_own_time(role, *home, *to)) return;
  const auto free_us = ends.free_us.begin();
  const int64_t room = *std::max_element(free_us + to->first, free_us + to->end);
  const int64_t until = std::max(room, arrival.home_us) + arrival.weights_us;
  for (int32_t device = home->first; device < home->end; ++device)
    if (!covers(*to, device)) ends.free_us[device] = std::max(ends.free_us[device], until);
}

// Ranks that ask rewards come to what stands behind these in their lists when all scores are there.
void wait_for_scores(const PlanSpace& space, const Assignment& plan, int call, int segment,
                     Ends& ends) {
  for (const RewardStop& stop : space.reward_stops) {
    const PlanOption* generation = plan.option[stop.generation];
    if (stop.before != call || generation == nullptr) continue;
    int64_t latest = 0;
    for (const int score : stop.scores)
      if (space.segment_of[score] == segment) latest = std::max(latest, ends.end_us[score]);
    const int32_t last_stage = generation->end - generation->devices() / generation->pp;
    const int32_t replicas = stop.one_rank ? 1 : generation->replicas;
    for (int32_t replica = 0; replica < replicas; ++replica) {
      int64_t& free_us = ends.free_us[last_stage + replica * generation->tp];
      free_us = std::max(free_us, latest);
    }
  }
}

// Schedules the calls of a segment from time 0.
void schedule(const PlanSpace& space, const Assignment& plan, int segment,
              const std::vector<int64_t>& open_us, Moves moves, Ends& ends) {
  ends.start_us.resize(space.calls.size());
  ends.end_us.resize(space.calls.size());
  const int64_t begin_us = segment == 0 ? space.fixed_us : 0;  // weights too move from then on
  ends.free_us.assign(space.num_devices(), begin_us);
  for (const int call : space.segments[segment]) {
    if (moves != Moves::kNone) wait_for_scores(space, plan, call, segment, ends);
    const PlanOption* option = plan.option[call];
    int64_t ready = begin_us;
    for (const int before : space.calls[call].after)
      if (space.segment_of[before] == segment) ready = std::max(ready, ends.end_us[before]);
    ends.start_us[call] = ready;
    if (option == nullptr) {
      ends.end_us[call] = ready + open_us[call];
      continue;
    }
    Arrival arrival = arrival_of(space, plan, call, moves);
    arrival.fields_us += ready;
    if (moves != Moves::kNone) {
      arrival.home_us = home_us(space, plan, call, ends);
      hold_home(space, plan, call, arrival, ends);
    }
    ends.start_us[call] = std::max(ready, ends.free_us[option->first]);
    ends.end_us[call] = run_option(space, *option, arrival, ends);
  }
}

// What waits in the memory of the fullest host beyond what it has.
double host_excess_bytes(const PlanSpace& space, const Assignment& plan) {
  const double limit = space.problem->host_memory_gib * kGib;
  if (limit <= 0) return 0;
  std::vector<double> held(static_cast<size_t>(space.node_of.back()) + 1, 0);
  for (size_t r = 0; r < space.roles.size(); ++r) {
    const PlanOption* home = plan.option[space.roles[r].home];
    if (plan.stay[r] < 0 || home == nullptr) continue;
    const Stay& stay = space.roles[r].stays[plan.stay[r]];
    const double bytes = (stay.weights_on_host ? home->weight_bytes : 0) +
                         (stay.optimizer_on_host ? home->optimizer_bytes : 0);
    for (int32_t d = home->first; d < home->end; ++d) held[space.node_of[d]] += bytes;
  }
  return *std::max_element(held.begin(), held.end()) - limit;
}

}  // namespace

int64_t overhead_us(const PlanSpace& space, const Assignment& plan, int call) {
  const Arrival arrival = arrival_of(space, plan, call, Moves::kPriced);
  return arrival.fields_us + arrival.weights_us + arrival.state_us;
}

int64_t segment_us(const PlanSpace& space, const Assignment& plan, int segment,
                   const std::vector<int64_t>& open_us, Moves moves) {
  thread_local Ends ends;
  schedule(space, plan, segment, open_us, moves, ends);
  int64_t latest = 0;
  for (const int call : space.segments[segment]) latest = std::max(latest, ends.end_us[call]);
  return latest;
}

double device_bytes(const PlanSpace& space, const Assignment& plan, int32_t device) {
  double resident = 0;
  bool some_linger = false;
  for (size_t r = 0; r < space.roles.size(); ++r) {
    const RoleSpace& role = space.roles[r];
    if (role.copies_stay) resident += staying_copies_bytes(plan, role, device);
    const PlanOption* home = plan.option[role.home];
    if (plan.stay[r] < 0 || home == nullptr || !covers(*home, device)) continue;
    resident += resident_bytes(space, plan, static_cast<int>(r));
    some_linger |= lingers(role, role.stays[plan.stay[r]]);
  }
  double most = 0;
  for (int c = 0; c < space.num_calls(); ++c)
    if (plan.option[c] != nullptr && covers(*plan.option[c], device))
      most = std::max(most, running_bytes(space, plan, c, device) +
                                (some_linger ? waiting_bytes(space, plan, c, device) : 0));
  return resident + most;
}

// What is on a device changes only where a range of devices begins or ends; the fullest device of
// equal ones is at the beginning of a range.
int64_t excess_bytes(const PlanSpace& space, const Assignment& plan) {
  double excess = std::max(0.0, host_excess_bytes(space, plan));
  const auto look_at = [&](int32_t device) {
    excess = std::max(excess, device_bytes(space, plan, device) - space.capacity_bytes[device]);
  };
  for (const PlanOption* option : plan.option)
    if (option != nullptr) look_at(option->first);
  for (const int32_t device : space.capacity_steps) look_at(device);
  return static_cast<int64_t>(std::ceil(excess));
}

std::vector<CallTiming> timeline(const PlanSpace& space, const Assignment& plan) {
  std::vector<CallTiming> out(space.calls.size());
  Ends ends;
  int64_t before_us = 0;
  for (size_t s = 0; s < space.segments.size(); ++s) {
    schedule(space, plan, static_cast<int>(s), {}, Moves::kPriced, ends);
    int64_t latest = 0;
    for (const int call : space.segments[s]) {
      out[call] = {before_us + ends.start_us[call], before_us + ends.end_us[call]};
      latest = std::max(latest, ends.end_us[call]);
    }
    before_us += latest;
  }
  return out;
}

PlanCost evaluate(const PlanSpace& space, const Assignment& plan) {
  PlanCost cost{excess_bytes(space, plan), 0};
  for (size_t s = 0; s < space.segments.size(); ++s)
    cost.time_us += segment_us(space, plan, static_cast<int>(s), {});
  return cost;
}

Assignment assignment_of(const PlanSpace& space, const Choice& choice) {
  Assignment plan;
  for (int c = 0; c < space.num_calls(); ++c)
    plan.option.push_back(&space.calls[c].options[choice[c]]);
  plan.stay.assign(choice.begin() + space.num_calls(), choice.end());
  return plan;
}

}  // namespace braid::inline search
