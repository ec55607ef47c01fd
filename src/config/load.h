// From YAML texts and overrides to a checked Config, and from there to the derived numbers of a
// run. Pure functions.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/yaml.h"
#include "config/options.h"

namespace braid::inline config {

struct ConfigSources {
  std::vector<std::pair<std::string, std::string>> files;  // (name, text); later ones win
  std::vector<std::string> overrides;                      // "key.sub=value", after the files
  std::function<std::optional<std::string>(const std::string&)> environment;
  std::vector<std::string> algorithms;  // names that advice on algorithm.name may give
};

struct LoadedConfig {
  Config config;
  YamlNode resolved;  // every key with its value and origin
};

// Files and overrides as one tree of known keys, ${ENV} expanded.
Result<YamlNode> config_tree(const ConfigSources& sources);

// config_tree(), then reads strictly and checks values that need no other file.
Result<LoadedConfig> load_config(const ConfigSources& sources);

// The same failure with the place in front where the key that its message begins with was set.
Status at_place(const YamlNode& tree, const Status& status);

// The batch arithmetic of one step, as people should see it before anything is loaded.
struct BatchArithmetic {
  int64_t sequences_per_step = 0;
  int64_t sequences_per_minibatch = 0;
  int64_t optimizer_steps_per_step = 0;
  int64_t optimizer_steps = 0;
};

// Divisibility problems are errors with the nearest valid values.
Result<BatchArithmetic> batch_arithmetic(const Config& config);

// "8 prompts x 4 samples = 32 sequences -> ...", one line.
std::string arithmetic_text(const Config& config, const BatchArithmetic& arithmetic);

// The choices in which frameworks differ in silence, one line: "ppo: gamma 1, lambda 0.95, ...,
// reference model not loaded (algorithm.kl.coef = 0)".
std::string algorithm_text(const AlgorithmOptions& algorithm);

}  // namespace braid::inline config
