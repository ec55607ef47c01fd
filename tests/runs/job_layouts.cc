#include "runs/job_layouts.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <regex>
#include <set>

#include "base/rng.h"
#include "plan/plan_text.h"

namespace braid {
namespace {

constexpr int kSamples = 4;  // of a mini-batch

// A random layout of a call on some of the devices; "" where it takes more.
std::string random_call(const std::string& call, int devices, RandomStream& random) {
  const auto one_of = [&](std::vector<int> values) { return values[random.below(values.size())]; };
  const bool generates = call == "generate", trains = call.rfind("update_", 0) == 0;
  const int tp = one_of({1, 1, 2, 4}), pp = one_of({1, 1, 2, 3});
  if (devices < tp * pp) return "";
  const int dp = 1 + static_cast<int>(random.below(std::min(devices / (tp * pp), kSamples)));
  std::vector<int> mesh(devices);
  std::iota(mesh.begin(), mesh.end(), 0);
  while (static_cast<int>(mesh.size()) > tp * pp * dp)
    mesh.erase(mesh.begin() + static_cast<int>(random.below(mesh.size())));
  std::string out = cat("  ", call, ": {dp: ", dp, ", tp: ", tp, ", pp: ", pp, ", mesh: \"");
  for (const int device : mesh) out += cat(device == mesh[0] ? "" : ",", device);
  out += "\"";
  if (tp > 1 && !generates && one_of({0, 1}) == 1) out += ", sequence_parallel: true";
  const bool interleaves = trains && pp == 2 && one_of({0, 1, 1}) == 1;
  if (interleaves) out += ", interleave: 2";
  if (trains && pp > 1 && !interleaves && one_of({0, 1}) == 1) out += ", schedule: gpipe";
  if (pp == 2 && !interleaves && one_of({0, 1}) == 1) out += ", stage_layers: \"1,3\"";
  if (!generates && one_of({0, 1}) == 1)
    out += cat(", micro_tokens: ", one_of({30, 60}));
  else if (interleaves)
    out += dp > 2 ? ", micro_tokens: 30" : ", micro_batches: 2";
  else if (!generates)
    out += cat(", micro_batches: ", dp > 2 ? 1 : one_of({1, 2}));
  const char* const again[] = {"none", "selective", "full"};
  if (trains) out += cat(", recompute: ", again[random.below(3)]);
  const int zero = dp == 1 || generates ? 0 : trains ? one_of({0, 1, 2, 3}) : one_of({0, 0, 3});
  if (zero > 0) out += cat(", zero: ", zero);
  return out + "}\n";
}

// Sequence parallelism where the actor trains and where values are read, alone.
std::string cut_in_some(const std::string& layout, const std::string& zero = "") {
  std::string out;
  for (const std::string_view call :
       {"generate", "old_logprob", "ref_logprob", "values", "update_critic", "update_actor"}) {
    const bool cut = call == "values" || call == "update_actor";
    out += cat("  ", call, ": {mesh: all, ", layout, cut ? ", sequence_parallel: true" : "",
               call == "generate" ? "" : zero, "}\n");
  }
  return out;
}

}  // namespace

std::vector<LayoutCase> layouts() {
  return {
      {"dp2", "grpo", "1x2", everywhere("grpo", "dp: 2", "dp: 2")},
      {"tp2", "ppo", "1x2", everywhere("ppo", "tp: 2", "tp: 2")},
      {"tp2s_native",
       "grpo",
       "1x2",
       everywhere("grpo", "tp: 2", "tp: 2, sequence_parallel: true"),
       false,
       {"train.reduction=native"}},
      {"tp4_native",
       "ppo",
       "1x4",
       everywhere("ppo", "tp: 4", "tp: 4"),
       true,
       {"train.reduction=native"}},
      {"grid_native",
       "grpo",
       "1x8",
       everywhere("grpo", "dp: 2, tp: 4", "dp: 2, tp: 4, sequence_parallel: true", "zero: 2"),
       true,
       {"train.reduction=native"}},
      {"tp2s", "grpo", "1x2", everywhere("grpo", "tp: 2", "tp: 2, sequence_parallel: true"), true},
      {"pp2", "grpo", "1x2", everywhere("grpo", "dp: 2", "pp: 2, micro_batches: 2")},
      {"pp2_ppo", "ppo", "1x2", everywhere("ppo", "tp: 2", "pp: 2, micro_batches: 4"), true},
      {"mixed", "ppo", "1x2",
       "  generate: {mesh: all, tp: 2}\n  old_logprob: {mesh: all, dp: 2}\n"
       "  ref_logprob: {mesh: all, pp: 2}\n  values: {mesh: all, tp: 2}\n"
       "  update_critic: {mesh: all, pp: 2}\n  update_actor: {mesh: all, dp: 2}\n"},
      // Calls of the same weights, of which one cuts rows over the ranks and the other does not.
      {"rows_of_calls", "ppo", "1x2", cut_in_some("tp: 2")},
      {"rows_of_calls_in_stages", "ppo", "1x4", cut_in_some("tp: 2, pp: 2"), true},
      {"rows_of_calls_in_slices", "ppo", "1x4", cut_in_some("dp: 2, tp: 2", ", zero: 3"), true},
      {"disjoint", "ppo", "1x2",
       "  generate: {mesh: 1}\n  old_logprob: {mesh: 1}\n  ref_logprob: {mesh: 0}\n"
       "  values: {mesh: 0}\n  update_critic: {mesh: 0}\n  update_actor: {mesh: 1}\n"},
      {"tp4", "grpo", "1x4", everywhere("grpo", "tp: 4", "tp: 4"), true},
      {"tp4s_ppo", "ppo", "1x4", everywhere("ppo", "tp: 4", "tp: 4, sequence_parallel: true"),
       true},
      {"pp4", "grpo", "1x4", everywhere("grpo", "pp: 4", "pp: 4, micro_batches: 2"), true},
      {"uneven", "ppo", "1x2",
       everywhere("ppo", "dp: 2", "pp: 2, stage_layers: \"3,1\", micro_batches: 2"), true},
      {"dp4", "ppo", "1x4", everywhere("ppo", "dp: 4", "dp: 4"), true},
      {"dp2tp2", "ppo", "1x4", everywhere("ppo", "dp: 2, tp: 2", "dp: 2, tp: 2"), true},
      {"dp2pp2", "ppo", "1x4", everywhere("ppo", "dp: 4", "dp: 2, pp: 2"), true},
      {"tp2pp2s", "grpo", "1x4",
       everywhere("grpo", "dp: 2, tp: 2",
                  "tp: 2, pp: 2, sequence_parallel: true, micro_batches: 2"),
       true},
      {"tp2pp4", "ppo", "1x8", everywhere("ppo", "dp: 8", "tp: 2, pp: 4"), true},
      {"zero1", "ppo", "1x2", everywhere("ppo", "dp: 2", "dp: 2", "zero: 1")},
      {"zero1_grid", "grpo", "1x8",
       everywhere("grpo", "dp: 4, tp: 2", "dp: 2, tp: 2, pp: 2", "zero: 1"), true},
      {"zero1_dp4", "grpo", "1x4", everywhere("grpo", "dp: 4", "dp: 4", "zero: 1"), true},
      {"zero2", "ppo", "1x2", everywhere("ppo", "dp: 2", "dp: 2, micro_batches: 2", "zero: 2"),
       true},
      {"zero2_grid", "grpo", "1x8",
       everywhere("grpo", "dp: 4, tp: 2", "dp: 2, tp: 2, pp: 2, micro_batches: 2", "zero: 2"),
       true},
      {"zero2_dp3", "grpo", "1x3",
       everywhere("grpo", "dp: 3", "dp: 3, micro_tokens: 40", "zero: 2"), true},
      {"zero2_tp4s", "ppo", "1x8",
       everywhere("ppo", "dp: 8", "dp: 2, tp: 4, sequence_parallel: true", "zero: 2"), true},
      {"zero3", "ppo", "1x2", everywhere("ppo", "dp: 2", "dp: 2, zero: 3")},
      {"zero3_grid", "grpo", "1x8",
       everywhere("grpo", "dp: 4, tp: 2", "dp: 2, tp: 2, pp: 2, micro_batches: 2", "zero: 3"),
       true},
      {"zero3_dp3", "grpo", "1x3",
       everywhere("grpo", "dp: 3", "dp: 3, micro_tokens: 40", "zero: 3, recompute: full"), true},
      {"zero3_tp4s", "ppo", "1x8",
       everywhere("ppo", "tp: 4, dp: 2", "dp: 2, tp: 4, sequence_parallel: true, zero: 3"), true},
      {"zero3_mixed", "ppo", "1x4",
       "  generate: {mesh: all, tp: 2, dp: 2}\n  old_logprob: {mesh: 1-3, dp: 3, zero: 3}\n"
       "  ref_logprob: {mesh: all, dp: 2, pp: 2, zero: 3}\n  values: {mesh: all, dp: 4, zero: 3}\n"
       "  update_critic: {mesh: 2-3, dp: 2, zero: 3}\n"
       "  update_actor: {mesh: all, dp: 2, pp: 2, stage_layers: \"3,1\", micro_batches: 2, zero: "
       "3}\n",
       true},
      {"hybrid1", "grpo", "1x4", everywhere("grpo", "dp: 4", "dp: 4", "zero: 1, zero_ranks: 2"),
       true},
      {"hybrid3", "ppo", "1x8",
       everywhere("ppo", "dp: 8", "dp: 4, tp: 2, micro_batches: 1, zero: 3, zero_ranks: 2"), true},
      {"host", "ppo", "1x2",
       everywhere("ppo", "dp: 2", "tp: 2") + "roles:\n  actor: {weights: host, optimizer: host}\n" +
           "  critic: {optimizer: host, weights: host, when: after_each_call}\n" +
           "  reference: {weights: host}\n"},
      {"host_zero3", "grpo", "1x2",
       everywhere("grpo", "dp: 2", "dp: 2, zero: 3") +
           "roles:\n  actor: {weights: host, optimizer: host}\n" +
           "  reference: {weights: host, when: after_each_call}\n",
       true},
      {"host_one", "ppo", "1x1",
       everywhere("ppo", "dp: 1", "dp: 1") + "roles:\n  actor: {weights: host}\n" +
           "  critic: {optimizer: host}\n  reference: {weights: host}\n",
       true},
      {"host_ahead", "ppo", "1x2",
       everywhere("ppo", "dp: 2", "pp: 2, micro_batches: 2") +
           "roles:\n  actor: {weights: host, optimizer: host, prefetch: true}\n" +
           "  critic: {optimizer: host, weights: host, when: after_each_call, prefetch: true}\n" +
           "  reference: {weights: host, prefetch: true}\n"},
      {"gpipe", "grpo", "1x2",
       everywhere("grpo", "dp: 2", "pp: 2, micro_batches: 4", "schedule: gpipe")},
      {"gpipe_grid", "ppo", "1x8",
       everywhere("ppo", "dp: 4, tp: 2", "dp: 2, tp: 2, pp: 2, micro_batches: 2",
                  "schedule: gpipe, zero: 1"),
       true},
      {"interleaved", "ppo", "1x2",
       everywhere("ppo", "dp: 2", "pp: 2, micro_batches: 4",
                  "interleave: 2, recompute: selective")},
      {"interleaved_grid", "grpo", "1x8",
       everywhere("grpo", "dp: 4, tp: 2", "dp: 2, tp: 2, pp: 2, micro_batches: 2",
                  "interleave: 2, zero: 1, recompute: full"),
       true},
      {"interleaved_zero3", "ppo", "1x4",
       everywhere("ppo", "dp: 4", "dp: 2, pp: 2, micro_batches: 2", "interleave: 2, zero: 3")},
      {"interleaved_zero2", "grpo", "1x8",
       everywhere("grpo", "dp: 4, tp: 2",
                  "dp: 2, tp: 2, pp: 2, sequence_parallel: true, micro_batches: 2",
                  "interleave: 2, zero: 2, recompute: full"),
       true},
      {"interleaved_zero3_tokens", "ppo", "1x6",
       everywhere("ppo", "dp: 3, tp: 2", "dp: 3, pp: 2, micro_tokens: 40",
                  "interleave: 2, zero: 3"),
       true},
      {"interleaved_tokens", "grpo", "1x4",
       everywhere("grpo", "dp: 4", "dp: 2, pp: 2, micro_tokens: 40", "interleave: 2"), true},
      {"tokens", "grpo", "1x2", everywhere("grpo", "dp: 2", "dp: 2, micro_tokens: 40"), true},
      {"again", "grpo", "1x4", everywhere("grpo", "dp: 4", "dp: 2, pp: 2", "recompute: full"),
       true},
      {"grid", "ppo", "1x8", everywhere("ppo", "dp: 2, tp: 2, pp: 2", "dp: 2, tp: 2, pp: 2"), true},
      {"nested", "ppo", "1x4",
       "  generate: {mesh: all, dp: 4}\n  old_logprob: {mesh: 0-1, dp: 2}\n  ref_logprob: {mesh: "
       "2-3, tp: 2}\n"
       "  values: {mesh: 0, dp: 1}\n  update_critic: {mesh: 0-1, dp: 2}\n"
       "  update_actor: {mesh: all, tp: 2, dp: 2}\n",
       true},
  };
}

std::vector<LayoutCase> algorithm_layouts() {
  const std::set<std::string> quick = {"reinforce_plus_plus_baseline-pp2",
                                       "cispo-zero3",
                                       "dapo-pp2",
                                       "dpo-pp2",
                                       "online_dpo-dp2",
                                       "kto-pp2",
                                       "dpo-ipo-zero3",
                                       "rm-pp2",
                                       "rm-squared_error-dp2",
                                       "rm-cross_entropy-tp2",
                                       "distill-tp2",
                                       "remax-dp2"};
  const std::map<std::string, std::pair<std::string, std::string>> ways = {
      {"dp2", {"dp: 2", "dp: 2"}},
      {"tp2", {"tp: 2", "tp: 2"}},
      {"pp2", {"dp: 2", "pp: 2, micro_batches: 2"}},
      {"zero3", {"dp: 2", "dp: 2, zero: 3"}}};
  std::vector<LayoutCase> out;
  for (const char* name : {"rloo",
                           "reinforce",
                           "reinforce_plus_plus",
                           "dapo",
                           "dr_grpo",
                           "gspo",
                           "cispo",
                           "reinforce_plus_plus_baseline",
                           "dpo",
                           "dpo-ipo",
                           "dpo-hinge",
                           "orpo",
                           "online_dpo",
                           "kto",
                           "distill",
                           "remax",
                           "sft",
                           "rm",
                           "rm-squared_error",
                           "rm-cross_entropy"})
    for (const auto& [way, calls] : ways)
      out.push_back({cat(name, "-", way), name, "1x2", everywhere(name, calls.first, calls.second),
                     quick.count(cat(name, "-", way)) == 0});
  return out;
}

LayoutCase reordered(const LayoutCase& layout) {
  const int devices = std::stoi(layout.devices.substr(layout.devices.find('x') + 1));
  const std::regex mesh("mesh: (\"[^\"]*\"|[^,}]+)");
  RandomStream random(31, std::hash<std::string>()(layout.name));
  LayoutCase out = layout;
  out.name = "order-" + layout.name;
  out.calls.clear();
  auto from = layout.calls.cbegin();
  for (std::sregex_iterator at(layout.calls.begin(), layout.calls.end(), mesh), end; at != end;
       ++at) {
    std::string said = (*at)[1].str();
    said.erase(std::remove(said.begin(), said.end(), '"'), said.end());
    DeviceMesh order = *parse_mesh(said == "all" ? cat("0-", devices - 1) : said, nullptr);
    for (size_t left = order.devices.size(); left > 1; --left)
      std::swap(order.devices[left - 1], order.devices[random.below(left)]);
    out.calls += std::string(from, (*at)[0].first) + "mesh: \"" + mesh_text(order) + "\"";
    from = (*at)[0].second;
  }
  out.calls += std::string(from, layout.calls.cend());
  return out;
}

std::vector<LayoutCase> orders() {
  const std::string forth = "{mesh: \"0,1\", ", back = "{mesh: \"1,0\", ";
  std::vector<LayoutCase> out = {
      {"back_tp2", "ppo", "1x2",
       "  generate: " + back + "tp: 2}\n  old_logprob: " + forth + "tp: 2}\n  ref_logprob: " +
           back + "pp: 2}\n  values: " + back + "dp: 2}\n  update_critic: " + back +
           "tp: 2, sequence_parallel: true}\n  update_actor: " + back + "tp: 2}\n"},
      {"back_pp2", "ppo", "1x2",
       "  generate: " + back + "pp: 2}\n  old_logprob: " + back + "pp: 2}\n  ref_logprob: " + back +
           "tp: 2}\n  values: " + forth + "pp: 2}\n  update_critic: " + back +
           "pp: 2, micro_batches: 2, interleave: 2}\n  update_actor: " + back +
           "pp: 2, micro_batches: 2}\n"},
      {"back_zero3", "grpo", "1x2",
       "  generate: " + back + "dp: 2}\n  old_logprob: " + forth + "dp: 2, zero: 3}\n" +
           "  ref_logprob: " + back + "dp: 2, zero: 3}\n  update_actor: " + back +
           "dp: 2, zero: 3}\n"},
      {"turned", "ppo", "1x4",
       "  generate: {mesh: \"2,0,3,1\", dp: 2, tp: 2}\n"
       "  old_logprob: {mesh: \"3,1,2,0\", tp: 2, pp: 2}\n"
       "  ref_logprob: {mesh: \"1,3\", tp: 2}\n  values: {mesh: \"2,3,0\", dp: 3}\n"
       "  update_critic: {mesh: \"3,2,1,0\", dp: 2, pp: 2, micro_batches: 2, zero: 2}\n"
       "  update_actor: {mesh: \"1,0,3,2\", tp: 2, pp: 2, micro_batches: 2}\n"}};
  for (const LayoutCase& layout : layouts())
    if (layout.devices != "1x1") out.push_back(reordered(layout)), out.back().full = true;
  return out;
}

LayoutCase random_layout(int number) {
  RandomStream random(29, static_cast<uint64_t>(number));
  const int devices = 2 + static_cast<int>(random.below(7));
  const std::string algorithm = random.below(2) == 0 ? "grpo" : "ppo";
  LayoutCase out{cat("random", number), algorithm, cat("1x", devices), ""};
  std::vector<std::string> calls = {"generate", "old_logprob", "ref_logprob", "update_actor"};
  if (algorithm == "ppo") calls.insert(calls.end(), {"values", "update_critic"});
  for (const std::string& call : calls) {
    std::string line;
    while (line.empty()) line = random_call(call, devices, random);
    out.calls += line;
  }
  return out;
}

const LayoutCase& layout_named(const std::string& name) {
  static const std::vector<LayoutCase> all = layouts();
  return *std::find_if(all.begin(), all.end(),
                       [&](const LayoutCase& layout) { return layout.name == name; });
}

}  // namespace braid
