#include "tabular/problem.h"

#include <algorithm>
#include <tuple>

#include "base/json.h"
#include "base/text.h"

namespace braid::tabular {
namespace {

constexpr int64_t kMaxDevices = 1 << 16;
constexpr int64_t kMaxIterations = 100'000;
constexpr int64_t kMaxTimeUs = 1'000'000'000'000'000;  // 31 years: a longer call is a wrong unit
constexpr int64_t kMaxBytes = int64_t{1} << 56;
constexpr double kMaxTotalUs = 7e17;  // twelve times such sums stay below 2^63

struct Range {
  int64_t low = 0;
  int64_t high = 0;
};

// An integer of the JSON text itself: neither 1.5 nor true nor "1" passes.
Result<int64_t> integer_in(const Json& value, const std::string& key, Range range) {
  if (!value.is_number_integer())
    return invalid_input(cat("'", key, "' must be an integer, not ", value.dump()));
  const bool too_large =
      value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(range.high);
  if (too_large || value.get<int64_t>() < range.low || value.get<int64_t>() > range.high)
    return invalid_input(
        cat("'", key, "' is ", value.dump(), "; it must be ", range.low, " to ", range.high));
  return value.get<int64_t>();
}

Result<int64_t> integer_field(const Json& object, const char* key, Range range) {
  const auto found = object.find(key);
  if (found == object.end()) return invalid_input(cat("missing key '", key, "'"));
  return integer_in(*found, key, range);
}

Result<std::string> name_field(const Json& object, const char* key) {
  BRAID_ASSIGN(std::string name, json_field<std::string>(object, key));
  if (name.empty()) return invalid_input(cat("'", key, "' is empty; give it a name"));
  return name;
}

Result<const Json*> array_field(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return invalid_input(cat("missing key '", key, "'"));
  if (!found->is_array())
    return invalid_input(cat("'", key, "' must be a list, not ", found->type_name()));
  return &*found;
}

using Names = std::vector<std::string>;

// Sizes are labels: 7 and 7.0 are one label, "7B" is another.
Result<std::string> model_size_field(const Json& object) {
  const auto found = object.find("model_size");
  if (found == object.end()) return invalid_input("missing key 'model_size'");
  if (found->is_string()) return cat("\"", found->get<std::string>(), "\"");
  if (found->is_number()) return format_double(found->get<double>());
  return invalid_input(cat("'model_size' must be a number or a name, not ", found->type_name()));
}

Status check_option(const Option& option, int32_t num_devices) {
  const Layout& layout = option.layout;
  if (option.end_device() > num_devices)
    return invalid_input(cat("devices ", option.first_device, " to ", option.end_device() - 1,
                             " are not in the cluster of ", num_devices,
                             " devices; lower first_device or num_devices"));
  const int64_t product = int64_t{layout.pp} * layout.tp * layout.dp;
  if (product != option.num_devices)
    return invalid_input(cat("pp*tp*dp is ", product, " but num_devices is ", option.num_devices,
                             "; make them equal"));
  if (option.peak_bytes < option.static_bytes)
    return invalid_input(cat("peak_bytes ", option.peak_bytes, " is below static_bytes ",
                             option.static_bytes, "; the peak includes the static part"));
  return ok_status();
}

Result<Option> parse_option(const Json& json, int32_t num_devices) {
  if (!json.is_object()) return invalid_input(cat("must be an object, not ", json.type_name()));
  static const Names kKeys = {"first_device", "num_devices", "pp",         "tp",
                              "dp",           "time_us",     "peak_bytes", "static_bytes"};
  BRAID_TRY(require_known_keys(json, kKeys));
  const Range devices{1, num_devices};
  BRAID_ASSIGN(const int64_t first, integer_field(json, "first_device", {0, num_devices - 1}));
  BRAID_ASSIGN(const int64_t count, integer_field(json, "num_devices", devices));
  BRAID_ASSIGN(const int64_t pp, integer_field(json, "pp", devices));
  BRAID_ASSIGN(const int64_t tp, integer_field(json, "tp", devices));
  BRAID_ASSIGN(const int64_t dp, integer_field(json, "dp", devices));
  Option option{
      .first_device = static_cast<int32_t>(first),
      .num_devices = static_cast<int32_t>(count),
      .layout = {static_cast<int32_t>(pp), static_cast<int32_t>(tp), static_cast<int32_t>(dp)}};
  BRAID_ASSIGN(option.time_us, integer_field(json, "time_us", {0, kMaxTimeUs}));
  BRAID_ASSIGN(option.peak_bytes, integer_field(json, "peak_bytes", {0, kMaxBytes}));
  BRAID_ASSIGN(option.static_bytes, integer_field(json, "static_bytes", {0, kMaxBytes}));
  BRAID_TRY(check_option(option, num_devices));
  return option;
}

Result<CallKind> parse_kind(const Json& json) {
  static const std::vector<std::string> kNames = {"generate", "infer", "train_step"};
  BRAID_ASSIGN(const std::string name, name_field(json, "kind"));
  for (size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<CallKind>(i);
  return invalid_input(
      cat("kind '", name, "' is none of generate, infer, train_step", did_you_mean(name, kNames)));
}

Result<std::vector<Option>> parse_options(const Json& json, int32_t num_devices) {
  BRAID_ASSIGN(const Json* list, array_field(json, "options"));
  if (list->empty()) return invalid_input("'options' is empty; a call needs at least one option");
  std::vector<Option> options;
  options.reserve(list->size());
  for (const Json& entry : *list) {
    Result<Option> option = parse_option(entry, num_devices);
    if (!option.ok()) return option.status().at(cat("option ", options.size()));
    options.push_back(*option);
  }
  return options;
}

// Everything but depends_on, which needs the names of all calls.
Result<Call> parse_call(const Json& json, int32_t num_devices) {
  if (!json.is_object()) return invalid_input(cat("must be an object, not ", json.type_name()));
  Call call;
  BRAID_ASSIGN(call.name, name_field(json, "name"));
  const std::string place = cat("call '", call.name, "'");
  static const Names kKeys = {"name", "role", "kind", "model_size", "depends_on", "options"};
  BRAID_TRY(require_known_keys(json, kKeys).at(place));
  BRAID_ASSIGN(call.role, name_field(json, "role").at(place));
  BRAID_ASSIGN(call.kind, parse_kind(json).at(place));
  BRAID_ASSIGN(call.model_size, model_size_field(json).at(place));
  BRAID_ASSIGN(call.options, parse_options(json, num_devices).at(place));
  return call;
}

Result<std::vector<int>> parse_depends_on(const Json& json, const std::vector<std::string>& names) {
  BRAID_ASSIGN(const Json* list, array_field(json, "depends_on"));
  std::vector<int> indices;
  for (const Json& entry : *list) {
    if (!entry.is_string())
      return invalid_input(cat("depends_on holds ", entry.dump(), "; it must hold call names"));
    const std::string name = entry.get<std::string>();
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end())
      return invalid_input(
          cat("depends_on names unknown call '", name, "'", did_you_mean(name, names)));
    indices.push_back(static_cast<int>(found - names.begin()));
  }
  std::sort(indices.begin(), indices.end());
  const auto twice = std::adjacent_find(indices.begin(), indices.end());
  if (twice != indices.end())
    return invalid_input(cat("depends_on names '", names[*twice], "' twice; remove one"));
  return indices;
}

Status parse_calls(const Json& list, Problem& problem) {
  if (list.empty()) return invalid_input("'calls' is empty; a problem needs at least one call");
  if (list.size() > kMaxCalls)
    return invalid_input(
        cat("'calls' has ", list.size(), " entries; at most ", kMaxCalls, " are supported"));
  std::vector<std::string> names;
  for (const Json& entry : list) {
    Result<Call> call = parse_call(entry, problem.num_devices);
    if (!call.ok()) return call.status().at(cat("calls[", names.size(), "]"));
    if (std::find(names.begin(), names.end(), call->name) != names.end())
      return invalid_input(cat("two calls are named '", call->name, "'; rename one"));
    names.push_back(call->name);
    problem.calls.push_back(std::move(*call));
  }
  for (size_t c = 0; c < names.size(); ++c) {
    BRAID_ASSIGN(problem.calls[c].depends_on,
                 parse_depends_on(list[c], names).at(cat("call '", names[c], "'")));
  }
  return ok_status();
}

// Removes calls whose dependencies are all removed until none is left; what stays contains a cycle.
Status check_acyclic(const Problem& problem) {
  uint64_t done = 0;
  const auto is_done = [&](int c) { return (done >> c & 1) != 0; };
  const int count = static_cast<int>(problem.calls.size());
  for (int round = 0; round < count; ++round)
    for (int c = 0; c < count; ++c) {
      const std::vector<int>& needs = problem.calls[c].depends_on;
      if (std::all_of(needs.begin(), needs.end(), is_done)) done |= uint64_t{1} << c;
    }
  std::vector<std::string> rest;
  for (int c = 0; c < count; ++c)
    if (!is_done(c)) rest.push_back(problem.calls[c].name);
  if (rest.empty()) return ok_status();
  return invalid_input(cat("the calls ", join(rest, ", "),
                           " depend on one another in a cycle; remove an edge from depends_on"));
}

// The two graphs for which the format does not define the parameter moves.
Status check_pairs(const Problem& problem) {
  const std::vector<MovePair> pairs = move_pairs(problem);
  for (const MovePair& pair : pairs) {
    const Call& train = problem.calls[pair.train];
    if (train.depends_on.empty())
      return invalid_input(cat("train call '", train.name, "' exchanges parameters with '",
                               problem.calls[pair.other].name,
                               "' and so needs at least one dependency; add one to depends_on"));
    for (const MovePair& before : pairs)
      if (std::count(train.depends_on.begin(), train.depends_on.end(), before.train) > 0)
        return invalid_input(cat("train call '", train.name, "' depends on train call '",
                                 problem.calls[before.train].name,
                                 "'; the format defines no parameter moves for that"));
  }
  return ok_status();
}

Result<Layout> parse_layout(const Json& json, const char* key) {
  BRAID_ASSIGN(const Json* list, array_field(json, key));
  if (list->size() != 3)
    return invalid_input(cat("'", key, "' must be [pp, tp, dp], not ", list->dump()));
  Layout layout;
  int32_t* const parts[] = {&layout.pp, &layout.tp, &layout.dp};
  for (int i = 0; i < 3; ++i) {
    BRAID_ASSIGN(const int64_t value, integer_in((*list)[i], key, {1, kMaxDevices}));
    *parts[i] = static_cast<int32_t>(value);
  }
  return layout;
}

Result<Move> parse_move(const Json& json) {
  if (!json.is_object()) return invalid_input(cat("must be an object, not ", json.type_name()));
  static const Names kKeys = {"model_size", "src", "dst", "time_us"};
  BRAID_TRY(require_known_keys(json, kKeys));
  Move move;
  BRAID_ASSIGN(move.model_size, model_size_field(json));
  BRAID_ASSIGN(move.source, parse_layout(json, "src"));
  BRAID_ASSIGN(move.destination, parse_layout(json, "dst"));
  BRAID_ASSIGN(move.time_us, integer_field(json, "time_us", {0, kMaxTimeUs}));
  return move;
}

std::string layout_text(const Layout& layout) {
  return cat("[", layout.pp, ",", layout.tp, ",", layout.dp, "]");
}

auto move_key(const Move& move) { return std::tie(move.model_size, move.source, move.destination); }

Status parse_moves(const Json& list, Problem& problem) {
  problem.moves.reserve(list.size());
  for (const Json& entry : list) {
    Result<Move> move = parse_move(entry);
    if (!move.ok()) return move.status().at(cat("realloc_us[", problem.moves.size(), "]"));
    problem.moves.push_back(std::move(*move));
  }
  std::sort(problem.moves.begin(), problem.moves.end(),
            [](const Move& a, const Move& b) { return move_key(a) < move_key(b); });
  const auto same_key = [](const Move& a, const Move& b) { return move_key(a) == move_key(b); };
  const auto contradiction = std::adjacent_find(
      problem.moves.begin(), problem.moves.end(),
      [&](const Move& a, const Move& b) { return same_key(a, b) && a.time_us != b.time_us; });
  if (contradiction != problem.moves.end())
    return invalid_input(cat("realloc_us has two times for model_size ", contradiction->model_size,
                             " from ", layout_text(contradiction->source), " to ",
                             layout_text(contradiction->destination), "; remove one row"));
  problem.moves.erase(std::unique(problem.moves.begin(), problem.moves.end(), same_key),
                      problem.moves.end());
  return ok_status();
}

// Also bounds device time, which searches add up: the total on every device, of all iterations.
Status check_total_time(const Problem& problem) {
  const double total = static_cast<double>(longest_iteration_us(problem));
  if (total * problem.iterations * problem.num_devices < kMaxTotalUs) return ok_status();
  return invalid_input("the device time of all iterations exceeds 20 000 years; check the unit");
}

Result<Problem> build_problem(const Json& json) {
  if (!json.is_object())
    return invalid_input(cat("must be one JSON object, not ", json.type_name()));
  static const Names kKeys = {"name",       "num_devices", "device_memory_bytes",
                              "iterations", "calls",       "realloc_us"};
  BRAID_TRY(require_known_keys(json, kKeys));
  Problem problem;
  BRAID_ASSIGN(problem.name, name_field(json, "name"));
  BRAID_ASSIGN(const int64_t devices, integer_field(json, "num_devices", {1, kMaxDevices}));
  problem.num_devices = static_cast<int32_t>(devices);
  BRAID_ASSIGN(problem.device_memory_bytes,
               integer_field(json, "device_memory_bytes", {1, kMaxBytes}));
  BRAID_ASSIGN(const int64_t iterations, integer_field(json, "iterations", {1, kMaxIterations}));
  problem.iterations = static_cast<int32_t>(iterations);
  BRAID_ASSIGN(const Json* calls, array_field(json, "calls"));
  BRAID_TRY(parse_calls(*calls, problem));
  BRAID_TRY(check_acyclic(problem));
  BRAID_TRY(check_pairs(problem));
  BRAID_ASSIGN(const Json* moves, array_field(json, "realloc_us"));
  BRAID_TRY(parse_moves(*moves, problem));
  BRAID_TRY(check_total_time(problem));
  return problem;
}

}  // namespace

Result<Problem> parse_problem(std::string_view text, const std::string& where) {
  BRAID_ASSIGN(const Json json, parse_json(text, where));
  return build_problem(json).at(where);
}

std::vector<MovePair> move_pairs(const Problem& problem) {
  std::vector<MovePair> pairs;
  const int count = static_cast<int>(problem.calls.size());
  for (int train = 0; train < count; ++train) {
    if (problem.calls[train].kind != CallKind::kTrainStep) continue;
    int partner = -1;
    for (int other = 0; other < count; ++other) {
      const Call& candidate = problem.calls[other];
      if (candidate.kind != CallKind::kTrainStep && candidate.role == problem.calls[train].role)
        partner = other;
    }
    if (partner >= 0) pairs.push_back({train, partner});
  }
  return pairs;
}

const Move* find_move(const Problem& problem, const std::string& model_size, const Layout& source,
                      const Layout& destination) {
  const auto key = std::tie(model_size, source, destination);
  const auto found = std::lower_bound(
      problem.moves.begin(), problem.moves.end(), key,
      [](const Move& move, const auto& wanted) { return move_key(move) < wanted; });
  return found != problem.moves.end() && move_key(*found) == key ? &*found : nullptr;
}

int64_t longest_iteration_us(const Problem& problem) {
  int64_t longest_move = 0;
  for (const Move& move : problem.moves) longest_move = std::max(longest_move, move.time_us);
  int64_t total = longest_move * 4 * static_cast<int64_t>(problem.calls.size());
  for (const Call& call : problem.calls) {
    int64_t longest = 0;
    for (const Option& option : call.options) longest = std::max(longest, option.time_us);
    total += longest;
  }
  return total;
}

Result<Plan> parse_plan(const Problem& problem, std::string_view text, const std::string& where) {
  BRAID_ASSIGN(const Json json, parse_json(text, where));
  if (!json.is_object() || !json.contains("choices") || !json["choices"].is_object())
    return invalid_input(cat(where, R"(: a plan is {"choices": {"<call name>": <option index>}})"));
  const Json& choices = json["choices"];
  std::vector<std::string> names;
  Plan plan;
  for (const Call& call : problem.calls) {
    names.push_back(call.name);
    const std::string place = cat(where, ": choices");
    const Range range{0, static_cast<int64_t>(call.options.size()) - 1};
    BRAID_ASSIGN(const int64_t index, integer_field(choices, call.name.c_str(), range).at(place));
    plan.push_back(static_cast<int>(index));
  }
  for (const auto& [name, index] : choices.items())
    if (std::find(names.begin(), names.end(), name) == names.end())
      return invalid_input(cat(where, ": choices names unknown call '", name, "'",
                               did_you_mean(name, names), "; the plan is for another problem"));
  return plan;
}

std::string plan_text(const Problem& problem, const Plan& plan) {
  OrderedJson choices;
  for (size_t c = 0; c < plan.size(); ++c) choices[problem.calls[c].name] = plan[c];
  OrderedJson json;
  json["choices"] = std::move(choices);
  return json.dump() + "\n";
}

}  // namespace braid::tabular
