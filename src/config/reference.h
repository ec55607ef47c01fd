// The list of all configuration keys as data, from visit(): for the check of keys, suggestions and
// the documentation. Pure functions.
#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "base/text.h"
#include "base/yaml.h"
#include "config/binder.h"
#include "config/options.h"

namespace braid::inline config {

struct OptionRow {
  enum class Kind { kLeaf, kGroup, kListOfGroups };
  std::string path;  // "rollout.temperature"; keys of a list's entries: "reward[].weight"
  Kind kind = Kind::kLeaf;
  std::string type;           // "number", "list of texts"; "" for groups
  std::string default_value;  // as YAML; "" for groups
  std::string allowed;        // "at least 1"; "" = any
  std::string doc;
  KeyFacts facts;  // with those of its groups
};

// Visits a struct and lists its keys, depth first in the order of visit().
class OptionLister {
 public:
  explicit OptionLister(std::string prefix = "", KeyFacts group = {})
      : prefix_(std::move(prefix)), group_(group) {}

  template <typename T, typename... Traits>
  void operator()(const char* key, T& field, const char* doc, const Traits&... traits) {
    OptionRow row;
    row.path = prefix_ + key;
    row.doc = doc;
    row.facts = key_facts(traits...).within(group_);
    row.allowed = allowed_text(row.facts.allowed);
    add(std::move(row), field);
  }

  std::vector<OptionRow> rows;

 private:
  static const char* type_name(const std::string&) { return "text"; }
  static const char* type_name(double) { return "number"; }
  static const char* type_name(int64_t) { return "whole number"; }
  static const char* type_name(bool) { return "true or false"; }

  template <typename T>
  void add(OptionRow row, T& field) {
    if constexpr (is_scalar_option<T>) {
      row.type = type_name(field);
      row.default_value = value_text(scalar_node(field));
      rows.push_back(std::move(row));
    } else if constexpr (std::is_same_v<T, YamlNode>) {
      row.type = "see there";
      row.default_value = "null";
      rows.push_back(std::move(row));
    } else {
      row.kind = OptionRow::Kind::kGroup;
      add_group(std::move(row), field, ".");
    }
  }

  template <typename T>
  void add(OptionRow row, std::vector<T>& field) {
    if constexpr (is_scalar_option<T>) {
      row.type = cat("list of ", type_name(T{}), "s");
      std::vector<std::string> items;
      for (const T& item : field) items.push_back(value_text(scalar_node(item)));
      row.default_value = cat("[", join(items, ", "), "]");
      rows.push_back(std::move(row));
    } else {
      row.kind = OptionRow::Kind::kListOfGroups;
      T entry;
      add_group(std::move(row), entry, "[].");
    }
  }

  template <typename T>
  void add_group(OptionRow row, T& field, const char* separator) {
    OptionLister lister(row.path + separator, row.facts);
    visit(lister, field);
    rows.push_back(std::move(row));
    rows.insert(rows.end(), lister.rows.begin(), lister.rows.end());
  }

  static std::string value_text(const YamlNode& node) {
    return node.scalar.empty() ? "\"\"" : node.scalar;
  }

  std::string prefix_;
  KeyFacts group_;
};

// Every key of Config.
std::vector<OptionRow> option_rows();

// What is declared of a key, or of the nearest group that it lies in: "reward[].weight",
// "reward[1].weight", "lora.targets[0]", "cluster.nodes". Null where nothing is.
const KeyFacts* facts_of(const std::string& key);

// The table of all keys, docs/configuration.md's second part.
std::string configuration_table();

// An unknown key anywhere in the tree is an error: for a key of another framework it names ours,
// its unit and the converted value, otherwise the nearest name. Advice on algorithm.name gives
// names of `algorithms`.
Status check_option_keys(const YamlNode& tree, const std::vector<std::string>& algorithms = {});

}  // namespace braid::inline config
