// Reading option structs from a YAML tree and printing them back, by the visit() function of each
// struct: the list of keys exists once. Strict: an unknown key, a wrong type and a duplicate are
// errors with their place.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "base/status.h"
#include "base/text.h"
#include "base/yaml.h"
#include "config/key_facts.h"

namespace braid::inline config {

// Text of a scalar converted strictly; the error says what was expected.
Status read_scalar(const YamlNode& node, const std::string& key, std::string* out);
Status read_scalar(const YamlNode& node, const std::string& key, double* out);
Status read_scalar(const YamlNode& node, const std::string& key, int64_t* out);
Status read_scalar(const YamlNode& node, const std::string& key, bool* out);

YamlNode scalar_node(const std::string& value);
YamlNode scalar_node(double value);
YamlNode scalar_node(int64_t value);
YamlNode scalar_node(bool value);

// The error for a key that no struct declares: names the nearest one.
Status unknown_key(const YamlNode& node, const std::string& path,
                   const std::vector<std::string>& known);

template <typename T>
inline constexpr bool is_scalar_option =
    std::is_same_v<T, std::string> || std::is_same_v<T, double> || std::is_same_v<T, int64_t> ||
    std::is_same_v<T, bool>;

// Whether a field has one of its allowed values; `place` begins the error.
template <typename T>
Status check_value(const Allowed& allowed, const std::string& place, const T& field) {
  if constexpr (std::is_same_v<T, std::string>)
    return check_allowed(allowed, place, field);
  else if constexpr (std::is_same_v<T, double> || std::is_same_v<T, int64_t>)
    return check_allowed(allowed, place, static_cast<double>(field));
  else
    return ok_status();
}
template <typename T>
Status check_value(const Allowed& allowed, const std::string& place, const std::vector<T>& field) {
  for (const T& item : field) BRAID_TRY(check_value(allowed, place, item));
  return ok_status();
}

// Visits a struct, however it was filled, and checks the values of its fields.
class OptionChecker {
 public:
  explicit OptionChecker(std::string path) : path_(std::move(path)) {}

  template <typename T, typename... Traits>
  void operator()(const char* key, T& field, const char* /*doc*/, const Traits&... traits) {
    if (!status_.ok()) return;
    const std::string path = cat(path_, ".", key);
    if constexpr (is_scalar_option<T>) {
      status_ = check_value(key_facts(traits...).allowed, path, field);
    } else {
      OptionChecker checker(path);
      visit(checker, field);
      status_ = checker.status_;
    }
  }

  const Status& status() const { return status_; }

 private:
  std::string path_;
  Status status_;
};

// Visits a struct and fills the fields that the node names.
class OptionReader {
 public:
  OptionReader(const YamlNode& node, std::string path) : node_(node), path_(std::move(path)) {}

  template <typename T, typename... Traits>
  void operator()(const char* key, T& field, const char* doc, const Traits&... traits) {
    const Allowed allowed = key_facts(traits...).allowed;
    known_.push_back(key);
    const YamlNode* found = node_.find(key);
    if (found == nullptr || !status_.ok()) return;
    const std::string path = path_.empty() ? key : cat(path_, ".", key);
    status_ = read(*found, path, field);
    if (!status_.ok()) return;
    status_ = check_value(allowed, cat(found->origin, ": ", path), field);
    if (!status_.ok() && *doc != '\0')
      status_ = invalid_input(cat(status_.message(), " (", path, ": ", doc, ")"));
  }

  // The first error, or an unknown key.
  Status finish() const {
    if (!status_.ok()) return status_;
    for (const auto& [key, value] : node_.map) {
      bool known = false;
      for (const std::string& name : known_) known |= name == key;
      if (!known) return unknown_key(value, path_.empty() ? key : cat(path_, ".", key), known_);
    }
    return ok_status();
  }

  template <typename T>
  static Status read(const YamlNode& node, const std::string& path, T& field) {
    if constexpr (is_scalar_option<T>) {
      return read_scalar(node, path, &field);
    } else {
      if (node.kind == YamlNode::Kind::kNull) return ok_status();
      if (node.kind != YamlNode::Kind::kMap)
        return invalid_input(cat(node.origin, ": ", path, " must be a group of keys"));
      OptionReader reader(node, path);
      visit(reader, field);
      return reader.finish();
    }
  }

  // A section with several forms stays a tree; whoever knows its meaning reads it strictly.
  static Status read(const YamlNode& node, const std::string& /*path*/, YamlNode& field) {
    field = node;
    return ok_status();
  }

  template <typename T>
  static Status read(const YamlNode& node, const std::string& path, std::vector<T>& field) {
    if (node.kind != YamlNode::Kind::kList) {
      const bool one = node.kind == YamlNode::Kind::kScalar && !node.scalar.empty();
      return invalid_input(cat(node.origin, ": ", path, " must be a list",
                               one ? cat("; write [", node.scalar, "]") : ""));
    }
    field.clear();
    for (const YamlNode& item : node.list) {
      T value{};
      BRAID_TRY(read(item, cat(path, "[", field.size(), "]"), value));
      field.push_back(std::move(value));
    }
    return ok_status();
  }

 private:
  const YamlNode& node_;
  std::string path_;
  std::vector<std::string> known_;
  Status status_;
};

// Visits a struct and builds the tree of all its values; origins are taken from `source` where it
// has the key.
class OptionPrinter {
 public:
  explicit OptionPrinter(const YamlNode* source) : source_(source) {
    out_.kind = YamlNode::Kind::kMap;
    out_.origin = source == nullptr ? "default" : source->origin;
  }

  template <typename T, typename... Traits>
  void operator()(const char* key, T& field, const char* /*doc*/, const Traits&...) {
    const YamlNode* source = source_ == nullptr ? nullptr : source_->find(key);
    out_.map.emplace_back(key, print(field, source));
  }

  template <typename T>
  static YamlNode print(T& field, const YamlNode* source) {
    if constexpr (is_scalar_option<T>) {
      YamlNode node = scalar_node(field);
      node.origin = source == nullptr ? "default" : source->origin;
      return node;
    } else {
      OptionPrinter printer(source);
      visit(printer, field);
      return std::move(printer.out_);
    }
  }

  static YamlNode print(YamlNode& field, const YamlNode* source) {
    YamlNode node = field;
    if (source == nullptr) node.origin = "default";
    return node;
  }

  template <typename T>
  static YamlNode print(std::vector<T>& field, const YamlNode* source) {
    YamlNode node;
    node.kind = YamlNode::Kind::kList;
    node.origin = source == nullptr ? "default" : source->origin;
    for (size_t i = 0; i < field.size(); ++i)
      node.list.push_back(print(
          field[i], source != nullptr && i < source->list.size() ? &source->list[i] : nullptr));
    return node;
  }

 private:
  const YamlNode* source_;
  YamlNode out_;
};

}  // namespace braid::inline config
