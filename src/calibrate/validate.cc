#include "calibrate/validate.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <ostream>
#include <set>

#include "base/text.h"

namespace braid::inline calibrate {
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
  return row.metric == MeasuredQuantity::kSecondsPerStep || row.metric == MeasuredQuantity::kTimeUs
             ? value
             : 1 / value;
}

using Table = std::map<std::string, std::vector<double>>;

void print_table(std::ostream& out, const std::string& title, const Table& table) {
  out << title << "\n  " << std::left << std::setw(34) << "" << std::right << std::setw(6) << "rows"
      << std::setw(9) << "median%" << std::setw(9) << "mean%" << std::setw(9) << "p90%"
      << std::setw(9) << "bias%"
      << "\n";
  for (const auto& [name, errors] : table) {
    const ErrorSummary s = summarize_errors(errors);
    out << "  " << std::left << std::setw(34) << name << std::right << std::setw(6) << s.rows
        << std::setw(9) << fixed_text(s.median, 1) << std::setw(9) << fixed_text(s.mean, 1)
        << std::setw(9) << fixed_text(s.p90, 1) << std::setw(9) << fixed_text(s.bias, 1) << "\n";
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
    summary.lines.push_back(cat(line, ", regret ", fixed_text(regret, 1), " %"));
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
  std::map<std::string, int> reasons;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!predictions[i].supported) {
      ++unsupported;
      ++reasons[predictions[i].reason];
    }
    const auto error = log_error(rows[i], predictions[i]);
    if (!error) continue;
    const std::string kind =
        rows[i].is_memory ? cat("memory ", kind_name(rows[i].kind)) : kind_name(rows[i].kind);
    kinds[kind].push_back(*error);
    gpus[cat(kind, " ", rows[i].gpu)].push_back(*error);
    engines[cat(kind, " ", rows[i].engine)].push_back(*error);
  }
  out << rows.size() << " rows, " << unsupported << " not supported\n";
  for (const auto& [reason, count] : reasons) out << "  " << count << " x " << reason << "\n";
  print_table(out, "by kind", kinds);
  print_table(out, "by kind and gpu", gpus);
  print_table(out, "by kind and engine", engines);
}

void print_fit(std::ostream& out, const Calibration& calibration) {
  out << "efficiencies: prior -> fitted, then factors by architecture, device, precision, engine, "
         "release\n";
  for (const Knob& knob : knobs()) {
    const auto base = calibration.offsets.find(knob.name);
    const double fitted =
        knob.prior * (base == calibration.offsets.end() ? 1 : std::exp(base->second));
    out << "  " << std::left << std::setw(26) << knob.name << std::right << std::setw(10)
        << fixed_text(knob.prior, 3) << " -> " << std::setw(10) << fixed_text(fitted, 3);
    for (const auto& [name, offset] : calibration.offsets)
      if (name.rfind(cat(knob.name, "@"), 0) == 0 && std::abs(offset) > 0.02)
        out << "  " << name.substr(name.find('@') + 1) << " x" << fixed_text(std::exp(offset), 2);
    out << "\n";
  }
  out << "80 % intervals (half width of ln(measured / predicted))\n";
  for (const auto& [name, half] : calibration.intervals)
    out << "  " << name << " " << fixed_text(half, 3) << "\n";
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

namespace {

void add_error_goals(const Table& errors, const std::map<std::string, double>& limits,
                     std::vector<Goal>* goals) {
  for (const auto& [kind, limit] : limits) {
    const auto found = errors.find(kind);
    if (found == errors.end()) continue;
    const ErrorSummary s = summarize_errors(found->second);
    goals->push_back(at_most(cat(kind, " median error %"), s.median, limit,
                             cat(s.rows, " rows, p90 ", fixed_text(s.p90, 1), " %")));
    const double allowed = std::max(5.0, 2 * s.bias_error);
    goals->push_back(
        at_most(cat(kind, " |bias| %"), std::abs(s.bias), allowed,
                cat("bias ", fixed_text(s.bias, 1), " +- ", fixed_text(s.bias_error, 1))));
  }
}

void add_memory_goals(const MemorySummary& s, std::vector<Goal>* goals) {
  const auto share = [](int part, int all) { return all > 0 ? 100.0 * part / all : 0; };
  goals->push_back(at_most("memory median error %", s.median_error_pct, 10,
                           cat(s.measured, " rows, sources weighted equally")));
  goals->push_back(at_most("memory oom called yes %", share(s.oom_called_yes, s.oom), 3,
                           cat(s.oom_called_yes, " of ", s.oom)));
  goals->push_back(at_most("memory ran called no %", share(s.ran_called_no, s.ran), 3,
                           cat(s.ran_called_no, " of ", s.ran)));
  goals->push_back(at_most("memory uncertain %", share(s.uncertain, s.judged), 15,
                           cat(s.uncertain, " of ", s.judged)));
}

void add_decision_goal(const DecisionSummary& s, std::vector<Goal>* goals) {
  if (s.groups == 0) return;
  goals->push_back(at_most("decisions reversed", s.reversed, 0,
                           cat(s.groups, " groups, ", s.agreed, " pairs agreed, ", s.within_noise,
                               " within noise, regret mean ", fixed_text(s.mean_regret_pct, 1),
                               " %, worst ", fixed_text(s.worst_regret_pct, 1), " %")));
}

// All rows are one goal; kinds alone are listed beside it.
void add_coverage_goal(const std::vector<Measurement>& rows,
                       const std::vector<Prediction>& predictions, std::vector<Goal>* goals) {
  std::map<std::string, std::pair<std::vector<Measurement>, std::vector<Prediction>>> kinds;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!log_error(rows[i], predictions[i])) continue;
    auto& [kind_rows, kind_predictions] = kinds[kind_name(rows[i].kind)];
    kind_rows.push_back(rows[i]);
    kind_predictions.push_back(predictions[i]);
  }
  std::string detail = "70 to 90;";
  for (const auto& [kind, part] : kinds)
    detail += cat(" ", kind, " ", fixed_text(100 * interval_coverage(part.first, part.second), 0));
  const double coverage = 100 * interval_coverage(rows, predictions);
  goals->push_back({"interval coverage %", coverage, 90, coverage >= 70 && coverage <= 90, detail});
}

}  // namespace

bool states_what_it_needs(const Measurement& row) {
  if (row.is_memory) {
    if (row.offload == "unknown") return false;
    if (row.kind == MeasurementKind::kGenerate) return row.prompt_len && row.output_len;
    return row.micro_batch && (row.seq_len || (row.prompt_len && row.output_len));
  }
  switch (row.kind) {
    case MeasurementKind::kTrainStep:
      return row.seq_len && row.global_batch;
    case MeasurementKind::kGenerate:
      return row.prompt_len && row.output_len;
    case MeasurementKind::kCollective:
      return row.bytes.has_value();
    case MeasurementKind::kRlStep:
      return row.prompt_len && row.output_len && row.prompts;
  }
  return false;
}

std::vector<Goal> check_goals(const std::vector<Measurement>& rows,
                              const std::vector<Prediction>& predictions, bool unseen_engine) {
  using Limits = std::map<std::string, double>;
  const Limits limits =
      unseen_engine
          ? Limits{{"train_step", 20}, {"generate", 35}}
          : Limits{{"train_step", 10}, {"generate", 15}, {"collective", 15}, {"rl_step", 25}};
  Table errors;
  int stated = 0, supported = 0, memory = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    stated += states_what_it_needs(rows[i]);
    supported += states_what_it_needs(rows[i]) && predictions[i].supported;
    memory += rows[i].is_memory;
    if (const auto error = log_error(rows[i], predictions[i]);
        error && counts_for_goal(rows[i]) && !rows[i].is_memory)
      errors[kind_name(rows[i].kind)].push_back(*error);
  }
  std::vector<Goal> goals;
  add_error_goals(errors, limits, &goals);
  if (memory > 0) add_memory_goals(summarize_memory(rows, predictions), &goals);
  add_coverage_goal(rows, predictions, &goals);
  const double share = stated > 0 ? 100.0 * supported / stated : 0;
  goals.push_back({"supported %", share, 90, share >= 90,
                   cat(supported, " of ", stated, " rows that state what they need")});
  if (!unseen_engine) add_decision_goal(summarize_decisions(rows, predictions), &goals);
  return goals;
}

void print_goals(std::ostream& out, const std::string& title, const std::vector<Goal>& goals) {
  out << title << "\n";
  for (const Goal& goal : goals)
    out << "  " << (goal.met ? "met   " : "MISSED") << "  " << std::left << std::setw(34)
        << goal.name << std::right << std::setw(8) << fixed_text(goal.value, 1) << "  limit "
        << std::setw(6) << fixed_text(goal.limit, 1) << "  " << goal.detail << "\n";
}

}  // namespace braid::inline calibrate
