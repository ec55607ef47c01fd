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
#include "foreign/foreign.h"

namespace braid::inline foreign {

// Edits between a misspelt key and the one that was meant.
inline constexpr int kTypingSlip = 2;

template <typename S>
struct SettingKey {
  std::string key;
  std::string ours;  // field of the plan or the configuration
  std::variant<std::function<int64_t&(S&)>, std::function<double&(S&)>, std::function<bool&(S&)>,
               std::function<std::string&(S&)>>
      field;
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

// Fills settings from keys; those that the table does not have are left. "null" and unresolved
// variables of keys in the table: the first keeps the default, the second is an error.
template <typename S>
Status read_settings(const std::vector<SettingKey<S>>& table, const ForeignKeys& keys,
                     S* settings) {
  for (const SettingKey<S>& entry : table) {
    const auto found = keys.find(entry.key);
    if (found == keys.end() || found->second == "null" || found->second == "None") continue;
    const bool name = std::holds_alternative<std::function<std::string&(S&)>>(entry.field);
    const std::string last = found->second.substr(found->second.find_last_of('/') + 1);
    if ((name ? last : found->second).find('$') != std::string::npos)
      return invalid_input(cat(entry.key, ": '", found->second, "' is not resolved here; add ",
                               entry.key, "=VALUE"));
    BRAID_TRY(std::visit(
                  [&](const auto& field) { return read_setting(found->second, &field(*settings)); },
                  entry.field)
                  .at(entry.key));
  }
  return ok_status();
}

// Every key whose value differs from the neutral one.
template <typename S>
std::vector<std::pair<std::string, std::string>> print_settings(
    const std::vector<SettingKey<S>>& table, S settings, S neutral = {}) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const SettingKey<S>& entry : table)
    std::visit(
        [&](const auto& field) {
          if (!(field(settings) == field(neutral)))
            out.emplace_back(entry.key, setting_text(field(settings)));
        },
        entry.field);
  return out;
}

// A family of keys: '*' stands for any text, dots included.
struct KeyFamily {
  std::string pattern, why;
};
bool matches(std::string_view pattern, std::string_view text);

// What a framework knows of its keys, asked in this order.
struct KeyKnowledge {
  std::set<std::string> read;
  std::vector<KeyFamily> not_priced, without_effect;
};
// One entry for every key. A key that no family has is unknown; so is one whose spelling is so near
// to a key that is read that it is a slip.
KeyReport account(const ForeignKeys& keys, const KeyKnowledge& knowledge);

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

// Tokens of KV cache that fit into `share` of a device beside its part of the weights; 0 when none
// do.
int64_t kv_tokens_of_share(const PlanningProblem& problem, const Call& generate,
                           const Strategy& strategy, double share);
// The inverse, rounded up to a hundredth.
double share_of_kv_tokens(const PlanningProblem& problem, const Call& generate,
                          const Strategy& strategy, int64_t tokens);

// The only call of a kind with a role, or null.
const Call* call_of(const Graph& graph, const std::string& role, CallKind kind);

}  // namespace braid::inline foreign
