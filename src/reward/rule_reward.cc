// The rule type: options and labels bound to the pure functions of rules.h.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <functional>
#include <memory>

#include "base/text.h"
#include "reward/outcome.h"
#include "reward/rules.h"

namespace braid::inline reward {
namespace {

using Rule = std::function<Result<double>(const RewardSample&)>;

double one_if(bool condition) { return condition ? 1 : 0; }

using Regex = std::shared_ptr<pcre2_code>;

std::string pcre2_message(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

Result<Regex> compile_regex(const std::string& pattern) {
  int code = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* compiled =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF, &code, &offset, nullptr);
  if (compiled != nullptr) return Regex(compiled, pcre2_code_free);
  return invalid_input(
      cat("pattern '", pattern, "', character ", offset, ": ", pcre2_message(code)));
}

// 1 or 0; an error where PCRE2 gives up (its match limit bounds the work of bad patterns).
Result<double> regex_score(const Regex& regex, const std::string& text) {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
      pcre2_match_data_create_from_pattern(regex.get(), nullptr), pcre2_match_data_free);
  const int found = pcre2_match(regex.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                0, 0, match.get(), nullptr);
  if (found >= 0) return 1.0;
  if (found == PCRE2_ERROR_NOMATCH) return 0.0;
  return invalid_input(cat("the expression cannot be evaluated: ", pcre2_message(found)));
}

Result<Rule> contains_rule(const RewardOptions& options) {
  return Rule([text = options.pattern](const RewardSample& sample) -> Result<double> {
    if (!text.empty()) return one_if(sample.response.find(text) != std::string::npos);
    BRAID_ASSIGN(const std::string label, label_text(sample));
    if (label.empty()) return invalid_input("'label' is empty, so every response contains it");
    return one_if(sample.response.find(label) != std::string::npos);
  });
}

Result<Rule> regex_rule(const RewardOptions& options) {
  BRAID_ASSIGN(const Regex regex, compile_regex(options.pattern));
  return Rule([regex](const RewardSample& sample) { return regex_score(regex, sample.response); });
}

Result<Rule> numeric_rule(const RewardOptions&) {
  return Rule([](const RewardSample& sample) -> Result<double> {
    BRAID_ASSIGN(const std::string label, label_text(sample));
    const std::optional<double> wanted = numeric_answer(label);
    if (!wanted) return invalid_input(cat("'label' holds no number: \"", label, "\""));
    const std::optional<double> given = numeric_answer(sample.response);
    return one_if(given && *given == *wanted);
  });
}

Result<Rule> exact_rule(const RewardOptions&) {
  return Rule([](const RewardSample& sample) -> Result<double> {
    BRAID_ASSIGN(const std::string label, label_text(sample));
    return one_if(trim(sample.response) == trim(label));
  });
}

Result<Rule> length_rule(const RewardOptions& options) {
  const bool in_tokens = options.unit == "tokens";
  return Rule([in_tokens, target = options.target](const RewardSample& sample) -> Result<double> {
    if (in_tokens && sample.response_ids.empty() && !sample.response.empty())
      return invalid_input("the sample has no 'response_ids' to count; use unit: chars for text");
    const size_t length =
        in_tokens ? sample.response_ids.size() : code_points(sample.response).size();
    return length_score(static_cast<double>(length), target);
  });
}

Result<Rule> lcs_rule(const RewardOptions&) {
  return Rule([](const RewardSample& sample) -> Result<double> {
    BRAID_ASSIGN(const std::string label, label_text(sample));
    return lcs_ratio(sample.response, label);
  });
}

Result<Rule> digit_share_rule(const RewardOptions&) {
  return Rule(
      [](const RewardSample& sample) -> Result<double> { return digit_share(sample.response); });
}

struct NamedRule {
  const char* name;
  Result<Rule> (*make)(const RewardOptions&);
};

constexpr NamedRule kRules[] = {
    {"contains", contains_rule},       {"regex", regex_rule},
    {"numeric", numeric_rule},         {"exact", exact_rule},
    {"length", length_rule},           {"lcs", lcs_rule},
    {"digit_share", digit_share_rule},
};

class RuleReward : public Reward {
 public:
  explicit RuleReward(Rule rule) : rule_(std::move(rule)) {}
  Result<std::vector<RewardOutcome>> score(const std::vector<RewardSample>& samples,
                                           const ScoreWatch& watch) override {
    std::vector<RewardOutcome> outcomes(samples.size());
    for (size_t i = 0; i < samples.size() && !watch.ended(); ++i) {
      const Result<double> value = rule_(samples[i]);
      outcomes[i] = value.ok() ? value_outcome(*value) : error_outcome(value.status().message());
      watch.scored(outcomes[i]);
    }
    return outcomes;
  }

 private:
  Rule rule_;
};

}  // namespace

Result<std::unique_ptr<Reward>> make_rule_reward(const RewardOptions& options) {
  std::vector<std::string> names;
  for (const NamedRule& rule : kRules) {
    names.push_back(rule.name);
    if (options.rule != rule.name) continue;
    BRAID_ASSIGN(Rule bound, rule.make(options));
    return std::unique_ptr<Reward>(new RuleReward(std::move(bound)));
  }
  return invalid_input(cat("no rule '", options.rule, "'", did_you_mean(options.rule, names),
                           "; rules: ", join(names, ", ")));
}

}  // namespace braid::inline reward
