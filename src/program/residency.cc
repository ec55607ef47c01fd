#include "program/residency.h"

#include <algorithm>
#include <map>

#include "base/contains.h"
#include "base/text.h"
#include "program/local_parts.h"
#include "program/placement.h"

namespace braid::inline program {

std::vector<Interval> load_runs(const ParamLayout& layout, int64_t layers, DeviceId device) {
  const auto& devices = layout.mesh.devices;
  const auto found = std::find(devices.begin(), devices.end(), device);
  BRAID_CHECK(found != devices.end(), "the layout has the device");
  const int stage =
      grid_position(layout_grid(layout), static_cast<size_t>(found - devices.begin())).stage;
  std::vector<Interval> out;
  for (int chunk = 0; chunk < layout.interleave; ++chunk) {
    const Interval part = part_layers(layout, layers, int64_t{chunk} * layout.pp + stage);
    const int64_t runs =
        std::clamp<int64_t>(kLoadRuns / layout.interleave, 1, std::max<int64_t>(1, part.size()));
    for (int64_t run = 0; run < runs; ++run) {
      const Interval cut = layers_of_part(part.size(), runs, run);
      out.push_back({part.begin + cut.begin, part.begin + cut.end});
    }
  }
  return out;
}

std::optional<double> share_before(const OpBody& body, const Interval& layers) {
  if (layers.end <= body.layers.begin || body.layers.end <= layers.begin) return std::nullopt;
  const auto before = static_cast<double>(layers.begin - body.layers.begin);
  return std::max(0.0, before / static_cast<double>(body.layers.size()));
}

namespace {

// Walks one list with what of each state is on its device.
class ResidencyRun {
 public:
  ResidencyRun(const Program& program, size_t rank)
      : program_(program), rank_(rank), list_(program.ranks[rank].instructions) {}

  Status run() {
    for (size_t i = 0; i < list_.size(); ++i) {
      const auto at = static_cast<int32_t>(i);
      const Status status = step(at, list_[i]);
      if (!status.ok())
        return status.at(
            cat("rank ", rank_, ", instruction ", i, " (", op_kind_name(list_[i].kind), ")"));
    }
    if (here_.empty()) return ok_status();
    return invalid_input(
        cat("rank ", rank_, ": ", text(here_.begin()->first), " is still there at the end"));
  }

 private:
  // A state on its device, or on the way there.
  struct Here {
    std::vector<int32_t> loads;  // that something has yet to wait for
    std::vector<Interval> layers;
    bool all = false;
  };

  // Index of a role's state in the program's, or -1.
  int32_t state_of(const RoleId& role, bool optimizer) const {
    const auto found =
        std::find(program_.states.begin(), program_.states.end(), RoleState{role, optimizer});
    return found == program_.states.end() ? -1
                                          : static_cast<int32_t>(found - program_.states.begin());
  }

  Status step(int32_t at, const Instruction& i) {
    if (i.kind == OpKind::kLoad) return load(at, i);
    if (i.kind == OpKind::kOffload) return offload(i);
    if (i.kind == OpKind::kReallocate) return reallocate(i);
    if (i.kind == OpKind::kCall || i.kind == OpKind::kRegionBegin) return start_call(i);
    return i.within.empty() ? ok_status() : invalid_input("waits within itself, but is no call");
  }

  Status load(int32_t at, const Instruction& i) {
    Here& here = here_[i.detail];
    const bool twice =
        here.all || (i.layers.size() <= 0 && !here.layers.empty()) ||
        std::any_of(here.layers.begin(), here.layers.end(), [&](const Interval& known) {
          return i.layers.begin < known.end && known.begin < i.layers.end;
        });
    if (twice) return invalid_input(cat("loads ", text(i.detail), " that is there already"));
    if (i.layers.size() > 0 && program_.states[i.detail].optimizer)
      return invalid_input("loads layers of an optimizer");
    i.layers.size() > 0 ? here.layers.push_back(i.layers) : void(here.all = true);
    here.loads.push_back(at);
    return ok_status();
  }

  Status offload(const Instruction& i) {
    const auto found = here_.find(i.detail);
    if (found == here_.end())
      return invalid_input(cat("offloads ", text(i.detail), " that is away"));
    BRAID_TRY(waits_for(i, found->second.loads));
    here_.erase(found);
    return ok_status();
  }

  // It reads the weights of the home copy where the rank has some.
  Status reallocate(const Instruction& i) {
    const RoleId& role = program_.copies[program_.reallocations[i.detail].copy].role;
    const int32_t state = state_of(role, false);
    const DeviceId self{static_cast<int32_t>(rank_)};
    const auto reads = [&](const WeightCopy& copy) {
      return copy.home && copy.role == role && place_in_mesh(copy.layout, self);
    };
    if (state < 0 || std::none_of(program_.copies.begin(), program_.copies.end(), reads))
      return ok_status();
    BRAID_TRY(is_whole(state, self));
    return waits_for(i, here_.at(state).loads);
  }

  Status start_call(const Instruction& i) {
    for (const InstructionId load : i.within)
      if (load.value < 0 || load.value >= static_cast<int32_t>(list_.size()) ||
          list_[load.value].kind != OpKind::kLoad)
        return invalid_input(
            cat("waits within itself for instruction ", load, ", which loads nothing"));
    const Call& call = program_.graph.calls[i.call.value];
    if (call.kind == CallKind::kGenerate && !i.within.empty())
      return invalid_input("a generation waits for all of its weights");
    const int32_t copy = program_.calls[i.call.value].copy;
    const bool home = copy >= 0 && program_.copies[copy].home;
    if (home) BRAID_TRY(uses(i, state_of(program_.copies[copy].role, false)));
    if (call.kind == CallKind::kFollow) return uses(i, state_of(RoleId{call.function}, false));
    return call.kind == CallKind::kTrainStep ? uses(i, state_of(call.role, true)) : ok_status();
  }

  Status uses(const Instruction& i, int32_t state) {
    if (state < 0) return ok_status();
    BRAID_TRY(is_whole(state, DeviceId{static_cast<int32_t>(rank_)}));
    BRAID_TRY(waits_for(i, here_.at(state).loads));
    here_.at(state).loads.clear();
    return ok_status();
  }

  Status waits_for(const Instruction& i, const std::vector<int32_t>& loads) const {
    for (const int32_t load : loads)
      if (!contains(i.after, InstructionId{load}) && !contains(i.within, InstructionId{load}))
        return invalid_input(cat("does not wait for instruction ", load, ", which loads ",
                                 text(list_[load].detail)));
    return ok_status();
  }

  Status is_whole(int32_t state, DeviceId device) const {
    const auto found = here_.find(state);
    if (found == here_.end())
      return invalid_input(cat("uses ", text(state), " that rests on the host"));
    if (found->second.all) return ok_status();
    for (const WeightCopy& copy : program_.copies)
      if (copy.home && copy.role == program_.states[state].role)
        for (const Interval& run : load_runs(copy.layout, layers_of(copy.role), device))
          for (int64_t layer = run.begin; layer < run.end; ++layer)
            if (!has_layer(found->second, layer))
              return invalid_input(
                  cat("uses ", text(state), ", but layer ", layer, " rests on the host"));
    return ok_status();
  }

  static bool has_layer(const Here& here, int64_t layer) {
    return std::any_of(here.layers.begin(), here.layers.end(),
                       [&](const Interval& run) { return run.begin <= layer && layer < run.end; });
  }

  int64_t layers_of(const RoleId& role) const {
    const ModelShape* model = find_shape(program_, role);
    BRAID_CHECK(model != nullptr, "role " + role.value + " has no model");
    return model->layers;
  }

  std::string text(int32_t state) const {
    const RoleState& of = program_.states[state];
    return cat(of.optimizer ? "the optimizer of " : "weights of ", of.role);
  }

  const Program& program_;
  const size_t rank_;
  const std::vector<Instruction>& list_;
  std::map<int32_t, Here> here_;  // by state
};

}  // namespace

Status verify_residency(const Program& program, size_t rank) {
  return program.states.empty() ? ok_status() : ResidencyRun(program, rank).run();
}

}  // namespace braid::inline program
