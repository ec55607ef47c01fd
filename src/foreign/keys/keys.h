// Keys of verl, TRL and OpenRLHF (command lines with dashes included) and what they are called
// here, so that no one's habit is accepted in silence or refused without help. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "base/yaml.h"
#include "foreign/keys/key_table.h"

namespace braid::inline foreign_keys {

// What a key of another framework is here.
struct KeyAnswer {
  std::string path, value, origin;    // of the key as it was written; a list as "[a, b]", a secret
                                      // as "***"
  const ForeignKey* entry = nullptr;  // null: the key is not known
  std::string ours;                   // our key, with its role; "" = none
  ForeignAdvice advice;
};

// Whom a table of keys is asked for.
struct KeyQuestion {
  const YamlNode& root;                        // the whole configuration
  const std::vector<std::string>& algorithms;  // names that algorithm.name may have
  std::string framework = "";                  // verl | trl | openrlhf; "" = any
};

// The names of those whose keys a framework's configurations have, as ForeignKey::framework says
// them; empty for a framework that is not known.
std::vector<std::string> key_owners(const std::string& framework);

// One answer for every key below a node, in the order written.
std::vector<KeyAnswer> answer_keys(const YamlNode& node, const std::string& path,
                                   const KeyQuestion& question);

// The "key: value" lines that say the same here; empty where the answer gives none.
std::vector<std::string> lines_of_answer(const KeyAnswer& answer);

// The value as it may be printed: "***" in place of a login key, a token or a password.
std::string shown_value(const std::string& path, const std::string& value);

// Why a known key has no line: what to decide, or what there is instead.
std::string reason_of_answer(const KeyAnswer& answer);

// "FILE:3: 'num_generations' is a key of TRL; here it is rollout.samples_per_prompt (responses per
// prompt): write rollout.samples_per_prompt: 8", or "" where neither the key nor a key below it is
// known. `root` is the whole configuration, for conversions that need other values; `algorithms`
// are the names that algorithm.name may have, of which advice is made.
std::string foreign_key_text(const YamlNode& node, const std::string& path, const YamlNode& root,
                             const std::vector<std::string>& algorithms);

}  // namespace braid::inline foreign_keys
