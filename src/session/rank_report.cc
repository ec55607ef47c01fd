#include "session/rank_report.h"

#include <algorithm>

#include "base/json.h"

namespace braid::inline session {
namespace {

Json reals(const std::vector<double>& values) {
  Json out = Json::array();
  for (const double value : values) out.push_back(value);
  return out;
}

std::vector<double> read_reals(const Json& list) {
  std::vector<double> out;
  for (const Json& value : list) out.push_back(value.get<double>());
  return out;
}

// A binary form: text would lose infinities and NaN.
std::string packed(const Json& value) {
  const auto bytes = Json::to_cbor(value);
  return {bytes.begin(), bytes.end()};
}
Result<Json> unpacked(const std::string& text, const char* what) {
  const Json value = Json::from_cbor(text, true, false);
  if (value.is_discarded()) return Status{Code::kUnavailable, std::string(what) + ": damaged"};
  return value;
}

}  // namespace

std::string report_text(const RankReport& report) {
  Json out = {{"seconds", report.seconds},       {"trained_tokens", report.trained_tokens},
              {"most_bytes", report.most_bytes}, {"stop_signal", report.stop_signal},
              {"samples", Json::object()},       {"metrics", Json::object()},
              {"repeats", report.repeats},       {"algo", report.algo},
              {"peak_bytes", report.peak_bytes}, {"records", report.records},
              {"rewards", report.rewards}};
  for (const auto& [call, entry] : report.samples)
    out["samples"][call] = {entry.expected, entry.computed};
  for (const auto& [name, metric] : report.metrics)
    out["metrics"][name] =
        reals({metric.sum, metric.count, metric.min, metric.max, metric.squares});
  return packed(out);
}

Result<RankReport> parse_report(const std::string& text) {
  BRAID_ASSIGN(const Json json, unpacked(text, "the report of a rank"));
  RankReport out;
  out.seconds = json["seconds"].get<std::map<std::string, double>>();
  out.trained_tokens = json["trained_tokens"].get<int64_t>();
  out.most_bytes = json["most_bytes"].get<double>();
  out.stop_signal = json["stop_signal"].get<std::string>();
  out.repeats = json["repeats"].get<std::map<std::string, int64_t>>();
  out.algo = json["algo"].get<AlgoState>();
  out.peak_bytes = json["peak_bytes"].get<std::map<int64_t, double>>();
  out.records = json["records"].get<std::map<int64_t, Json>>();
  out.rewards = json["rewards"].get<std::map<std::string, Json>>();
  for (const auto& [call, entry] : json["samples"].items())
    out.samples[call] = {entry[0].get<int64_t>(), entry[1].get<int64_t>()};
  for (const auto& [name, values] : json["metrics"].items()) {
    const std::vector<double> numbers = read_reals(values);
    out.metrics[name] = {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]};
  }
  return out;
}

void merge(RankReport&& from, RankReport* into) {
  merge(into->metrics, from.metrics);
  SampleLedger::merge(from.samples, &into->samples);
  for (const auto& [call, seconds] : from.seconds)
    into->seconds[call] = std::max(into->seconds[call], seconds);
  for (const auto& [call, count] : from.repeats)
    into->repeats[call] = std::max(into->repeats[call], count);
  into->trained_tokens += from.trained_tokens;
  into->most_bytes = std::max(into->most_bytes, from.most_bytes);
  if (into->stop_signal.empty()) into->stop_signal = from.stop_signal;
  into->algo.merge(from.algo);
  into->peak_bytes.merge(from.peak_bytes);
  into->records.merge(from.records);
  into->rewards.merge(from.rewards);
}

}  // namespace braid::inline session
