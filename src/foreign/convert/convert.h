// A whole configuration of TRL, verl or OpenRLHF as one of Braid. What a key becomes is said by the
// table of foreign/keys, which also answers such keys one by one; nothing of the source is left out
// in silence, but what is Hydra's own (defaults, hydra.*, _target_). Pure; thread-safe.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/yaml.h"
#include "foreign/foreign.h"

namespace braid::inline foreign {

struct ConvertOptions {
  std::string framework;                // trl | verl | openrlhf
  std::string algorithm;                // algorithm.name where the keys do not say it; "" = they do
  std::vector<std::string> algorithms;  // that algorithm.name may be
};

struct Conversion {
  struct Note {
    std::string key, value, why;
  };
  YamlNode config;                   // the origin of a value is the key that it comes from
  std::vector<Note> to_decide;       // the configuration does not say enough
  std::vector<Note> off;             // keys that the source switches off, and that need no key here
  std::vector<Note> left_out;        // nothing takes the place of the key or of its value
  std::vector<Note> unknown;         // nobody here knows the key
  std::vector<std::string> missing;  // keys of ours that a run needs and nothing gave a value
};

// What the keys mean here. Where they are silent and the framework's default is another than ours,
// its default is written. Errors: an unknown framework; TRL's keys where neither they nor the
// options say which trainer they are for.
Result<Conversion> convert_config(const ForeignKeys& keys, const ConvertOptions& options);

// The configuration as YAML, each value with the key that it comes from, then the notes as
// comments. `source` says where it was read from.
std::string conversion_text(const Conversion& conversion, const ConvertOptions& options,
                            const std::string& source);

// The keys of a file of TRL's, YAML or JSON. Errors: a script; a text that is no YAML, or no map.
Result<ForeignKeys> trl_configuration(const std::string& text, const std::string& where);

// "left out: trainer.device, ... (why)", a line for each reason, decision and unknown key.
std::vector<std::string> conversion_warnings(const Conversion& conversion);

// In one line: what a run still needs, and how much else is to decide.
std::string conversion_end(const Conversion& conversion);

// What a framework takes where a configuration is silent, of those keys that change what is
// learned. `algorithm` is ours. Internal to foreign/convert.
std::vector<std::pair<std::string, std::string>> foreign_defaults(const std::string& framework,
                                                                  const std::string& algorithm);

}  // namespace braid::inline foreign
