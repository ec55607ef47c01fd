#include "pricing/profile.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/text.h"
#include "pricing/efficiency.h"

namespace braid::inline pricing {
namespace {

constexpr ProfileOp kOps[] = {ProfileOp::kLayerForward, ProfileOp::kLayerBackward,
                              ProfileOp::kLayerDecode,  ProfileOp::kHeadForward,
                              ProfileOp::kHeadBackward, ProfileOp::kOptimizer};

struct Point {
  double size = 0;
  double seconds = 0;
};

// Linear between neighbours; below the smallest size its time holds (it is all overhead), above the
// largest the time grows in proportion.
double interpolate(std::vector<Point> points, double size) {
  std::sort(points.begin(), points.end(),
            [](const Point& a, const Point& b) { return a.size < b.size; });
  if (size <= points.front().size) return points.front().seconds;
  for (size_t i = 1; i < points.size(); ++i) {
    const Point &low = points[i - 1], &high = points[i];
    if (size > high.size) continue;
    const double share = (size - low.size) / std::max(high.size - low.size, 1e-300);
    return low.seconds + share * (high.seconds - low.seconds);
  }
  return points.back().seconds * size / points.back().size;
}

// The time at the wanted token count for every measured context, in order of context. Long contexts
// are measured with many tokens only: below those their times follow the shortest context's.
std::vector<Point> points_by_context(const Profile& profile, const LayerTime& wanted) {
  std::map<double, std::vector<Point>> contexts;
  for (const LayerTime& time : profile.layers)
    if (time.op == wanted.op && time.model == wanted.model && time.tp == wanted.tp)
      contexts[time.context].push_back({time.tokens, time.seconds});
  std::vector<Point> points;
  for (const auto& [context, sizes] : contexts) {
    const auto smaller = [](const Point& a, const Point& b) { return a.size < b.size; };
    const double fewest = std::min_element(sizes.begin(), sizes.end(), smaller)->size;
    double seconds = interpolate(sizes, wanted.tokens);
    if (wanted.tokens < fewest)
      seconds *= interpolate(contexts.begin()->second, wanted.tokens) /
                 interpolate(contexts.begin()->second, fewest);
    points.push_back({context, seconds});
  }
  return points;
}

// Linear through the two nearest points, never below half of the nearest one.
double extended(const std::vector<Point>& points, double at) {
  if (points.size() == 1) return points[0].seconds;
  size_t i = 1;
  while (i + 1 < points.size() && at > points[i].size) ++i;
  const Point &low = points[i - 1], &high = points[i];
  const double slope = (high.seconds - low.seconds) / (high.size - low.size);
  const double nearest = at < low.size ? low.seconds : high.seconds;
  return std::max(low.seconds + slope * (at - low.size), 0.5 * std::min(low.seconds, nearest));
}

Result<double> positive(const Json& json, const char* key) {
  BRAID_ASSIGN(const double value, json_field<double>(json, key));
  if (!std::isfinite(value) || value <= 0)
    return invalid_input(cat("'", key, "' must be finite and above 0"));
  return value;
}

Result<LayerTime> layer_from_json(const Json& json) {
  LayerTime time;
  BRAID_ASSIGN(const std::string op, json_field<std::string>(json, "op"));
  const auto found = std::find_if(std::begin(kOps), std::end(kOps),
                                  [&](ProfileOp o) { return op == profile_op_name(o); });
  if (found == std::end(kOps)) return invalid_input(cat("unknown operation '", op, "'"));
  time.op = *found;
  BRAID_ASSIGN(time.model, json_field<std::string>(json, "model"));
  BRAID_ASSIGN(time.tp, json_field_or<int>(json, "tp", 1));
  BRAID_ASSIGN(time.tokens, positive(json, "tokens"));
  BRAID_ASSIGN(time.context, json_field_or<double>(json, "context", 0));
  BRAID_ASSIGN(time.seconds, positive(json, "seconds"));
  if (time.tp < 1 || !std::isfinite(time.context) || time.context < 0)
    return invalid_input("'tp' must be at least 1 and 'context' at least 0");
  return time;
}

Result<std::map<std::string, double>> efficiencies_from_json(const Json& json) {
  std::map<std::string, double> out;
  BRAID_ASSIGN(const Json stated, json_field_or<Json>(json, "efficiencies", Json::object()));
  if (!stated.is_object()) return invalid_input("'efficiencies' must be an object of numbers");
  for (const auto& [name, value] : stated.items()) {
    if (find_knob(name) == nullptr)
      return invalid_input(cat("efficiencies: unknown efficiency '", name, "'"));
    if (!value.is_number() || !(value.get<double>() >= 0) || value.get<double>() > 1e9)
      return invalid_input(cat("efficiencies: '", name, "' must be a number from 0 to 1e9"));
    out[name] = value.get<double>();
  }
  return out;
}

Result<CollectiveTime> collective_from_json(const Json& json) {
  CollectiveTime time;
  BRAID_ASSIGN(time.op, json_field<std::string>(json, "op"));
  BRAID_ASSIGN(time.members, json_field<int>(json, "members"));
  BRAID_ASSIGN(time.inside_node, json_field_or<bool>(json, "inside_node", true));
  BRAID_ASSIGN(time.bytes, positive(json, "bytes"));
  BRAID_ASSIGN(time.seconds, positive(json, "seconds"));
  if (time.members < 2) return invalid_input("'members' must be at least 2");
  return time;
}

}  // namespace

const char* profile_op_name(ProfileOp op) {
  switch (op) {
    case ProfileOp::kLayerForward:
      return "layer_forward";
    case ProfileOp::kLayerBackward:
      return "layer_backward";
    case ProfileOp::kLayerDecode:
      return "layer_decode";
    case ProfileOp::kHeadForward:
      return "head_forward";
    case ProfileOp::kHeadBackward:
      return "head_backward";
    case ProfileOp::kOptimizer:
      return "optimizer";
  }
  return "?";
}

std::string layer_shape(const ModelSize& model) {
  std::string shape =
      cat("h", model.hidden, "-i", model.intermediate, model.gated_mlp ? "g" : "", "-a",
          model.heads, "x", model.head_dim, "-k", model.kv_heads, "-v", model.vocab);
  if (model.experts > 0)
    shape += cat("-e", model.experts, "x", model.expert_intermediate, "t", model.top_k, "s",
                 model.shared_experts);
  return model.mla ? shape + "-mla" : shape;
}

std::ostream& operator<<(std::ostream& out, const Profile& profile) {
  return out << profile_json(profile).dump(1);
}

Json profile_json(const Profile& profile) {
  Json layers = Json::array(), collectives = Json::array();
  for (const LayerTime& time : profile.layers)
    layers.push_back({{"op", profile_op_name(time.op)},
                      {"model", time.model},
                      {"tp", time.tp},
                      {"tokens", time.tokens},
                      {"context", time.context},
                      {"seconds", time.seconds}});
  for (const CollectiveTime& time : profile.collectives)
    collectives.push_back({{"op", time.op},
                           {"members", time.members},
                           {"inside_node", time.inside_node},
                           {"bytes", time.bytes},
                           {"seconds", time.seconds}});
  return {{"gpu", gpu_json(profile.gpu)},
          {"precision", precision_name(profile.precision)},
          {"engine", profile.engine},
          {"efficiencies", profile.efficiencies},
          {"layers", layers},
          {"collectives", collectives}};
}

Result<Profile> profile_from_json(const Json& json) {
  Profile profile;
  BRAID_ASSIGN(const Json gpu, json_field<Json>(json, "gpu"));
  BRAID_ASSIGN(profile.gpu, gpu_from_json(gpu));
  BRAID_ASSIGN(const std::string precision, json_field<std::string>(json, "precision"));
  BRAID_ASSIGN(profile.precision, parse_precision(precision));
  BRAID_ASSIGN(profile.engine, json_field_or<std::string>(json, "engine", ""));
  BRAID_ASSIGN(profile.efficiencies, efficiencies_from_json(json));
  BRAID_ASSIGN(const Json layers, json_field_or<Json>(json, "layers", Json::array()));
  BRAID_ASSIGN(const Json collectives, json_field_or<Json>(json, "collectives", Json::array()));
  for (size_t i = 0; i < layers.size(); ++i) {
    BRAID_ASSIGN(LayerTime time, layer_from_json(layers[i]).at(cat("layers[", i, "]")));
    profile.layers.push_back(std::move(time));
  }
  for (size_t i = 0; i < collectives.size(); ++i) {
    BRAID_ASSIGN(CollectiveTime time,
                 collective_from_json(collectives[i]).at(cat("collectives[", i, "]")));
    profile.collectives.push_back(std::move(time));
  }
  return profile;
}

std::optional<double> profiled_layer_s(const Profile& profile, const LayerTime& wanted) {
  const std::vector<Point> by_context = points_by_context(profile, wanted);
  if (!by_context.empty()) return extended(by_context, wanted.context);
  if (wanted.tp == 1) return std::nullopt;
  LayerTime whole = wanted;
  whole.tp = 1;
  const auto seconds = profiled_layer_s(profile, whole);
  return seconds ? std::optional<double>(*seconds / wanted.tp) : std::nullopt;
}

std::optional<double> profiled_optimizer_s(const Profile& profile, double parameters) {
  const LayerTime* largest = nullptr;
  for (const LayerTime& time : profile.layers)
    if (time.op == ProfileOp::kOptimizer && (largest == nullptr || time.tokens > largest->tokens))
      largest = &time;
  if (largest == nullptr) return std::nullopt;
  return parameters * largest->seconds / largest->tokens;
}

std::optional<double> profiled_collective_s(const Profile& profile, const CollectiveTime& wanted) {
  std::vector<Point> points;
  for (const CollectiveTime& time : profile.collectives)
    if (time.op == wanted.op && time.members == wanted.members &&
        time.inside_node == wanted.inside_node)
      points.push_back({time.bytes, time.seconds});
  if (points.empty()) return std::nullopt;
  return interpolate(std::move(points), wanted.bytes);
}

}  // namespace braid::inline pricing
