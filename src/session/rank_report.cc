#include "session/rank_report.h"

#include <limits>

#include "base/json.h"

namespace braid::inline session {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

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
              {"peak_bytes", report.peak_bytes}, {"stop_signal", report.stop_signal},
              {"samples", Json::object()},       {"metrics", Json::object()},
              {"repeats", report.repeats},       {"record", report.record}};
  for (const auto& [call, entry] : report.samples)
    out["samples"][call] = {entry.expected, entry.computed};
  for (const auto& [name, metric] : report.metrics)
    out["metrics"][name] = reals({metric.sum, metric.count, metric.min, metric.max});
  return packed(out);
}

Result<RankReport> parse_report(const std::string& text) {
  BRAID_ASSIGN(const Json json, unpacked(text, "the report of a rank"));
  RankReport out;
  out.seconds = json["seconds"].get<std::map<std::string, double>>();
  out.trained_tokens = json["trained_tokens"].get<int64_t>();
  out.peak_bytes = json["peak_bytes"].get<double>();
  out.stop_signal = json["stop_signal"].get<std::string>();
  out.repeats = json["repeats"].get<std::map<std::string, int64_t>>();
  out.record = json["record"];
  for (const auto& [call, entry] : json["samples"].items())
    out.samples[call] = {entry[0].get<int64_t>(), entry[1].get<int64_t>()};
  for (const auto& [name, values] : json["metrics"].items()) {
    const std::vector<double> numbers = read_reals(values);
    out.metrics[name] = {numbers[0], numbers[1], numbers[2], numbers[3]};
  }
  return out;
}

std::string scored_text(const ScoredSamples& scored, const Rows& rows) {
  Json by_name = Json::object();
  for (const auto& [name, values] : scored.by_name) by_name[name] = reals(values);
  return packed({{"rows", rows},
                 {"raw", reals(scored.raw)},
                 {"total", reals(scored.total)},
                 {"kept", scored.kept},
                 {"by_name", by_name},
                 {"timeouts", scored.timeouts},
                 {"errors", scored.errors}});
}

Result<ScoredSamples> merge_scored(const std::vector<std::string>& texts, size_t size) {
  ScoredSamples out;
  out.raw.assign(size, kNone);
  out.total.assign(size, kNone);
  out.kept.assign(size, false);
  for (const std::string& text : texts) {
    if (text.empty()) continue;
    BRAID_ASSIGN(const Json json, unpacked(text, "the rewards of a rank"));
    const auto rows = json["rows"].get<Rows>();
    for (size_t i = 0; i < rows.size(); ++i) {
      out.raw[rows[i]] = json["raw"][i].get<double>();
      out.total[rows[i]] = json["total"][i].get<double>();
      out.kept[rows[i]] = json["kept"][i].get<bool>();
    }
    for (const auto& [name, values] : json["by_name"].items()) {
      auto& all = out.by_name.try_emplace(name, size, kNone).first->second;
      for (size_t i = 0; i < rows.size(); ++i) all[rows[i]] = values[i].get<double>();
    }
    out.timeouts += json["timeouts"].get<int64_t>();
    out.errors += json["errors"].get<int64_t>();
  }
  return out;
}

std::string values_text(const std::map<size_t, double>& by_row) {
  Rows rows;
  std::vector<double> values;
  for (const auto& [row, value] : by_row) rows.push_back(row), values.push_back(value);
  return packed({{"rows", rows}, {"values", reals(values)}});
}

Status add_values(const std::string& text, std::map<size_t, double>* by_row) {
  BRAID_ASSIGN(const Json json, unpacked(text, "the values of a rank"));
  const auto rows = json["rows"].get<Rows>();
  const std::vector<double> values = read_reals(json["values"]);
  for (size_t i = 0; i < rows.size(); ++i) (*by_row)[rows[i]] = values[i];
  return ok_status();
}

}  // namespace braid::inline session
