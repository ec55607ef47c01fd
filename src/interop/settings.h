// A framework's settings as a struct with a table of its keys: one table reads, prints and
// documents them. Internal to plan/. Pure.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/text.h"
#include "interop/foreign.h"

namespace braid::foreign {

// Edits between a misspelt key and the one that was meant.
inline constexpr int kTypingSlip = 2;

template <typename S>
struct SettingKey {
  const char* key;
  const char* ours;  // field of the plan or the configuration
  std::variant<int64_t& (*)(S&), double& (*)(S&), bool& (*)(S&), std::string& (*)(S&)> field;
};

inline Status read_setting(const std::string& text, int64_t* out) {
  if (parse_int(text, out)) return ok_status();
  return invalid_input(cat("must be a whole number, is '", text, "'"));
}
inline Status read_setting(const std::string& text, double* out) {
  if (parse_double(text, out)) return ok_status();
  return invalid_input(cat("must be a number, is '", text, "'"));
}
inline Status read_setting(const std::string& text, bool* out) {
  if (text == "True" || text == "true" || text == "1") return *out = true, ok_status();
  if (text == "False" || text == "false" || text == "0") return *out = false, ok_status();
  return invalid_input(cat("must be True or False, is '", text, "'"));
}
inline Status read_setting(const std::string& text, std::string* out) {
  return *out = text, ok_status();
}

inline std::string setting_text(int64_t value) { return cat(value); }
inline std::string setting_text(double value) { return format_double(value); }
inline std::string setting_text(bool value) { return value ? "True" : "False"; }
inline std::string setting_text(const std::string& value) { return value; }

// Fills settings from keys. Keys that the table does not have are left; those near one of the
// table's are noted. "null" and unresolved variables of keys in the table: the first keeps the
// default, the second is an error.
template <typename S>
Status read_settings(const std::vector<SettingKey<S>>& table, const ForeignKeys& keys, S* settings,
                     std::vector<std::string>* notes) {
  std::vector<std::string> known;
  for (const SettingKey<S>& entry : table) {
    known.push_back(entry.key);
    const auto found = keys.find(entry.key);
    if (found == keys.end() || found->second == "null" || found->second == "None") continue;
    if (found->second.find('$') != std::string::npos)
      return invalid_input(cat(entry.key, ": '", found->second, "' is not resolved here; add ",
                               entry.key, "=VALUE"));
    BRAID_TRY(std::visit([&](auto field) { return read_setting(found->second, &field(*settings)); },
                         entry.field)
                  .at(entry.key));
  }
  const std::set<std::string> names(known.begin(), known.end());
  for (const auto& [key, value] : keys) {
    if (names.count(key) > 0) continue;
    std::vector<std::string> similar;  // whose length allows so few slips
    for (const std::string& name : known)
      if (std::abs(static_cast<int>(name.size()) - static_cast<int>(key.size())) <= kTypingSlip)
        similar.push_back(name);
    const std::string near = nearest_name(key, similar);
    if (!near.empty() && edit_distance(key, near) <= kTypingSlip && keys.count(near) == 0)
      notes->push_back(cat("unknown key ", key, " is ignored", did_you_mean(key, known)));
  }
  return ok_status();
}

// Every key whose value differs from the default's.
template <typename S>
std::vector<std::pair<std::string, std::string>> print_settings(
    const std::vector<SettingKey<S>>& table, S settings) {
  S neutral;
  std::vector<std::pair<std::string, std::string>> out;
  for (const SettingKey<S>& entry : table)
    std::visit(
        [&](auto field) {
          if (!(field(settings) == field(neutral)))
            out.emplace_back(entry.key, setting_text(field(settings)));
        },
        entry.field);
  return out;
}

// A key that changes speed or memory and that a plan does not say, with the value that is planned.
struct UnplannedKey {
  std::string key, planned;
};
// Notes the keys that have another value than the planned one, which may name other keys.
// `value_of` gives what the text of a planned value means.
void note_unplanned(const std::vector<UnplannedKey>& unplanned, const ForeignKeys& keys,
                    const std::function<std::string(const UnplannedKey&)>& value_of,
                    std::vector<std::string>* notes);

template <typename S>
std::vector<ForeignKeyInfo> table_info(const std::vector<SettingKey<S>>& table) {
  std::vector<ForeignKeyInfo> out;
  for (const SettingKey<S>& entry : table) out.push_back({entry.key, entry.ours});
  return out;
}

// What every import does alike: cluster, lengths, model sizes.
// Notes which catalogue entry a name means where it is not the entry's own.
Result<ModelSize> model_of_path(const std::string& key, const std::string& path,
                                const ImportOptions& options, std::vector<std::string>* notes);
Result<Cluster> imported_cluster(const ImportOptions& options, int64_t nodes, int64_t per_node);
// The longest prompt and response that a configuration allows, with their keys.
struct LengthLimits {
  int64_t prompt = 0, response = 0;
  std::string prompt_key, response_key;
};
// Errors: stated lengths above a limit.
Status set_lengths(const ImportOptions& options, const LengthLimits& limits,
                   PlanningProblem* problem, std::vector<std::string>* notes);

// Tokens of KV cache that fit into `share` of a device beside 1/tp of the weights; 0 when none do.
int64_t kv_tokens_of_share(const PlanningProblem& problem, const Call& generate, int tp,
                           double share);
// The inverse, rounded up to a hundredth.
double share_of_kv_tokens(const PlanningProblem& problem, const Call& generate, int tp,
                          int64_t tokens);

// The only call of a kind with a role, or null.
const Call* call_of(const Graph& graph, const std::string& role, CallKind kind);

}  // namespace braid::foreign
