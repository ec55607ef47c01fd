#include "cost/validate.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <set>
#include <sstream>

#include "base/text.h"

namespace braid {
namespace {

constexpr double kNoisePct = 5;

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = share * (values.size() - 1);
  const size_t low = static_cast<size_t>(at), high = std::min(low + 1, values.size() - 1);
  return values[low] + (at - low) * (values[high] - values[low]);
}

// Lower is better for times, higher for throughput: turned into "time" of one unit.
double as_time(const Measurement& row, double value) {
  return row.metric == Metric::kSecondsPerStep || row.metric == Metric::kTimeUs ? value : 1 / value;
}

using Table = std::map<std::string, std::vector<double>>;

std::string fixed(double value, int digits = 1) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(digits) << value;
  return out.str();
}

void print_table(std::ostream& out, const std::string& title, const Table& table) {
  out << title << "\n  " << std::left << std::setw(34) << "" << std::right << std::setw(6) << "rows"
      << std::setw(9) << "median%" << std::setw(9) << "mean%" << std::setw(9) << "p90%"
      << std::setw(9) << "bias%"
      << "\n";
  for (const auto& [name, errors] : table) {
    const ErrorSummary s = summarize_errors(errors);
    out << "  " << std::left << std::setw(34) << name << std::right << std::setw(6) << s.rows
        << std::setw(9) << fixed(s.median) << std::setw(9) << fixed(s.mean) << std::setw(9)
        << fixed(s.p90) << std::setw(9) << fixed(s.bias) << "\n";
  }
}

struct Member {
  std::string id;
  double measured = 0, predicted = 0;
};

// One set of comparable rows: a group, and within it the same phase.
std::string comparison_key(const Measurement& row) {
  return cat(kind_name(row.kind), " ", row.phase, " ", row.group);
}

void compare_pairs(const std::vector<Member>& members, DecisionSummary* summary,
                   std::string* line) {
  int agreed = 0, reversed = 0, noise = 0;
  for (size_t i = 0; i < members.size(); ++i)
    for (size_t j = i + 1; j < members.size(); ++j) {
      const double measured = members[i].measured / members[j].measured,
                   predicted = members[i].predicted / members[j].predicted;
      if (std::max(measured, 1 / measured) <= 1 + kNoisePct / 100) {
        ++noise;
      } else {
        ++((measured > 1) == (predicted > 1) ? agreed : reversed);
      }
    }
  summary->agreed += agreed;
  summary->reversed += reversed;
  summary->within_noise += noise;
  *line += cat("  agreed ", agreed, ", reversed ", reversed, ", within noise ", noise);
}

double regret_pct(const std::vector<Member>& members) {
  const auto by = [](double Member::*field) {
    return [field](const Member& a, const Member& b) { return a.*field < b.*field; };
  };
  const Member& chosen = *std::min_element(members.begin(), members.end(), by(&Member::predicted));
  const Member& best = *std::min_element(members.begin(), members.end(), by(&Member::measured));
  return 100 * (chosen.measured / best.measured - 1);
}

Goal at_most(const std::string& name, double value, double limit, const std::string& detail = "") {
  return {name, value, limit, value <= limit, detail};
}

bool counts_for_goal(const Measurement& row) {
  constexpr double kSmallMessage = 65536;
  return row.kind != MeasurementKind::kCollective || row.bytes.value_or(0) >= kSmallMessage;
}

}  // namespace

ErrorSummary summarize_errors(const std::vector<double>& log_errors) {
  ErrorSummary summary;
  std::vector<double> absolute;
  double sum = 0, square = 0, absolute_sum = 0;
  for (const double error : log_errors) {
    const double pct = 100 * (std::exp(-error) - 1);
    absolute.push_back(std::abs(pct));
    absolute_sum += std::abs(pct);
    sum += -100 * error;
    square += 1e4 * error * error;
  }
  summary.rows = static_cast<int>(log_errors.size());
  if (absolute.empty()) return summary;
  const double n = summary.rows;
  summary.median = quantile(absolute, 0.5);
  summary.p90 = quantile(absolute, 0.9);
  summary.mean = absolute_sum / n;
  summary.bias = sum / n;
  summary.bias_error =
      n > 1 ? std::sqrt(std::max(0.0, square / n - summary.bias * summary.bias) / (n - 1)) : 0;
  return summary;
}

std::optional<double> error_pct(const Measurement& row, const Prediction& prediction) {
  const auto error = log_error(row, prediction);
  if (!error) return std::nullopt;
  return 100 * (std::exp(-*error) - 1);
}

DecisionSummary summarize_decisions(const std::vector<Measurement>& rows,
                                    const std::vector<Prediction>& predictions) {
  std::map<std::string, std::vector<Member>> groups;
  for (size_t i = 0; i < rows.size(); ++i)
    if (!rows[i].group.empty() && !rows[i].is_memory && log_error(rows[i], predictions[i]))
      groups[comparison_key(rows[i])].push_back({rows[i].id, as_time(rows[i], *rows[i].value),
                                                 as_time(rows[i], predictions[i].predicted)});
  DecisionSummary summary;
  for (const auto& [name, members] : groups) {
    if (members.size() < 2) continue;
    ++summary.groups;
    std::string line = cat(name, ": ", members.size(), " rows,");
    compare_pairs(members, &summary, &line);
    const double regret = regret_pct(members);
    summary.mean_regret_pct += regret;
    summary.worst_regret_pct = std::max(summary.worst_regret_pct, regret);
    summary.lines.push_back(cat(line, ", regret ", fixed(regret), " %"));
  }
  if (summary.groups > 0) summary.mean_regret_pct /= summary.groups;
  return summary;
}

double interval_coverage(const std::vector<Measurement>& rows,
                         const std::vector<Prediction>& predictions) {
  int inside = 0, all = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!log_error(rows[i], predictions[i])) continue;
    const double measured = rows[i].is_memory ? *rows[i].peak_memory_gib : *rows[i].value;
    ++all;
    inside += measured >= predictions[i].low && measured <= predictions[i].high;
  }
  return all > 0 ? static_cast<double>(inside) / all : 0;
}

MemorySummary summarize_memory(const std::vector<Measurement>& rows,
                               const std::vector<Prediction>& predictions) {
  MemorySummary summary;
  std::map<std::string, std::vector<double>> by_source;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Measurement& row = rows[i];
    const Prediction& prediction = predictions[i];
    if (!row.is_memory || !prediction.supported) continue;
    if (const auto error = error_pct(row, prediction))
      by_source[row.source].push_back(std::abs(*error)), ++summary.measured;
    ++summary.judged;
    summary.uncertain += prediction.fits == "uncertain";
    const bool oom = row.memory_kind == "oom";
    ++(oom ? summary.oom : summary.ran);
    summary.oom_called_yes += oom && prediction.fits == "yes";
    summary.ran_called_no += !oom && prediction.fits == "no";
  }
  // The weighted median over rows whose weight is one over the number of rows of their source.
  std::vector<std::pair<double, double>> weighted;
  for (const auto& [source, errors] : by_source)
    for (const double error : errors) weighted.emplace_back(error, 1.0 / errors.size());
  std::sort(weighted.begin(), weighted.end());
  double at = 0;
  for (const auto& [error, weight] : weighted) {
    at += weight;
    summary.median_error_pct = error;
    if (at >= 0.5 * by_source.size()) break;
  }
  return summary;
}

void print_errors(std::ostream& out, const std::vector<Measurement>& rows,
                  const std::vector<Prediction>& predictions) {
  Table kinds, gpus, engines;
  int unsupported = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    unsupported += !predictions[i].supported;
    const auto error = log_error(rows[i], predictions[i]);
    if (!error) continue;
    const std::string kind =
        rows[i].is_memory ? cat("memory ", kind_name(rows[i].kind)) : kind_name(rows[i].kind);
    kinds[kind].push_back(*error);
    gpus[cat(kind, " ", rows[i].gpu)].push_back(*error);
    engines[cat(kind, " ", rows[i].engine)].push_back(*error);
  }
  out << rows.size() << " rows, " << unsupported << " not supported\n";
  print_table(out, "by kind", kinds);
  print_table(out, "by kind and gpu", gpus);
  print_table(out, "by kind and engine", engines);
}

OrderedJson validation_json(const std::vector<Measurement>& rows,
                            const std::vector<Prediction>& predictions) {
  OrderedJson list = OrderedJson::array();
  for (size_t i = 0; i < rows.size(); ++i) {
    const Prediction& p = predictions[i];
    OrderedJson row = {{"id", p.id}};
    row["predicted"] = p.supported ? OrderedJson(p.predicted) : OrderedJson();
    row["low"] = p.supported ? OrderedJson(p.low) : OrderedJson();
    row["high"] = p.supported ? OrderedJson(p.high) : OrderedJson();
    const auto error = error_pct(rows[i], p);
    row["error_pct"] = error ? OrderedJson(*error) : OrderedJson();
    row["supported"] = p.supported;
    row["reason"] = p.reason;
    if (rows[i].is_memory) row["fits"] = p.supported ? OrderedJson(p.fits) : OrderedJson();
    list.push_back(std::move(row));
  }
  return {{"rows", list}};
}

std::vector<Goal> check_goals(const std::vector<Measurement>& rows,
                              const std::vector<Prediction>& predictions, bool unseen_engine) {
  const std::map<std::string, double> limits =
      unseen_engine
          ? std::map<std::string, double>{{"train_step", 20}, {"generate", 35}}
          : std::map<std::string, double>{
                {"train_step", 10}, {"generate", 15}, {"collective", 15}, {"rl_step", 25}};
  Table errors;
  for (size_t i = 0; i < rows.size(); ++i)
    if (const auto error = log_error(rows[i], predictions[i]);
        error && counts_for_goal(rows[i]) && !rows[i].is_memory)
      errors[kind_name(rows[i].kind)].push_back(*error);
  std::vector<Goal> goals;
  for (const auto& [kind, limit] : limits) {
    const ErrorSummary s = summarize_errors(errors[kind]);
    goals.push_back(at_most(cat(kind, " median error %"), s.median, limit,
                            cat(s.rows, " rows, p90 ", fixed(s.p90), " %")));
    const double allowed = std::max(5.0, 2 * s.bias_error);
    goals.push_back(at_most(cat(kind, " |bias| %"), std::abs(s.bias), allowed,
                            cat("bias ", fixed(s.bias), " +- ", fixed(s.bias_error))));
  }
  const double coverage = 100 * interval_coverage(rows, predictions);
  goals.push_back(
      {"interval coverage %", coverage, 90, coverage >= 70 && coverage <= 90, "70 to 90"});
  if (unseen_engine) return goals;
  const DecisionSummary decisions = summarize_decisions(rows, predictions);
  goals.push_back(at_most(
      "decisions reversed", decisions.reversed, 0,
      cat(decisions.groups, " groups, ", decisions.agreed, " agreed, ", decisions.within_noise,
          " within noise, mean regret ", fixed(decisions.mean_regret_pct), " %, worst ",
          fixed(decisions.worst_regret_pct), " %")));
  return goals;
}

void print_goals(std::ostream& out, const std::string& title, const std::vector<Goal>& goals) {
  out << title << "\n";
  for (const Goal& goal : goals)
    out << "  " << (goal.met ? "met   " : "MISSED") << "  " << std::left << std::setw(34)
        << goal.name << std::right << std::setw(8) << fixed(goal.value) << "  limit "
        << std::setw(6) << fixed(goal.limit) << "  " << goal.detail << "\n";
}

}  // namespace braid
