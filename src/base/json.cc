#include "base/json.h"

#include <algorithm>
#include <set>
#include <vector>

namespace braid::inline base {
namespace {

// Of lists and objects in each other: what reads, copies, prints and ends a value takes them by
// recursion.
constexpr size_t kMostJsonLevels = 200;

// Reads a document for nothing but its first syntax error, its first key that occurs twice in one
// object, and how deep it is. A pass of its own: the parser that builds the value takes ten times
// as long when it has to report every key.
class DocumentChecker final : public nlohmann::json_sax<Json> {
 public:
  const std::string& duplicate() const { return duplicate_; }
  const std::string& error() const { return error_; }

  bool start_object(std::size_t /*size*/) override {
    if (depth_ == keys_.size()) keys_.emplace_back();
    keys_[depth_++].clear();
    return open();
  }
  bool end_object() override {
    --depth_;
    --levels_;
    return true;
  }
  bool key(string_t& name) override {
    if (!keys_[depth_ - 1].insert(name) && duplicate_.empty()) duplicate_ = name;
    return true;
  }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    error_ = cat("not valid JSON: ", error.what());
    return false;
  }

  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_array(std::size_t /*size*/) override { return open(); }
  bool end_array() override {
    --levels_;
    return true;
  }

 private:
  bool open() {
    if (++levels_ <= kMostJsonLevels) return true;
    error_ = cat("nested deeper than ", kMostJsonLevels, " levels");
    return false;
  }

  // The keys of one object; few objects have so many that a list is the slower choice.
  class KeySet {
   public:
    void clear() {
      few_.clear();
      many_.clear();
    }
    bool insert(const std::string& key) {
      if (few_.size() == kFew) return many_.insert(key).second && !in_few(key);
      if (in_few(key)) return false;
      few_.push_back(key);
      return true;
    }

   private:
    static constexpr size_t kFew = 16;
    bool in_few(const std::string& key) const {
      return std::find(few_.begin(), few_.end(), key) != few_.end();
    }
    std::vector<std::string> few_;
    std::set<std::string> many_;
  };

  std::vector<KeySet> keys_;  // one per object around this place, kept for the next object
  size_t depth_ = 0;          // of objects alone
  size_t levels_ = 0;         // of lists, too
  std::string duplicate_;
  std::string error_;
};

template <typename Document>
Result<Document> parse_document(std::string_view text, const std::string& where) {
  DocumentChecker checker;
  if (!Json::sax_parse(text.begin(), text.end(), &checker))
    return invalid_input(cat(where, ": ", checker.error()));
  if (!checker.duplicate().empty())
    return invalid_input(cat(where, ": key '", checker.duplicate(), "' occurs twice; remove one"));
  try {
    return Document::parse(text.begin(), text.end());
  } catch (const nlohmann::json::exception& error) {
    return invalid_input(cat(where, ": not valid JSON: ", error.what()));
  }
}

}  // namespace

Result<Json> parse_json(std::string_view text, const std::string& where) {
  return parse_document<Json>(text, where);
}

Result<OrderedJson> parse_ordered_json(std::string_view text, const std::string& where) {
  return parse_document<OrderedJson>(text, where);
}

Status require_known_keys(const Json& object, const std::vector<std::string>& known) {
  static const std::vector<std::string> kRemarks = {
      "note",   "notes",     "comment", "description", "source",
      "author", "generator", "version", "metadata",    "seed"};
  const auto has = [](const std::vector<std::string>& names, const std::string& key) {
    return std::find(names.begin(), names.end(), key) != names.end();
  };
  for (const auto& [key, value] : object.items())
    if (!has(known, key) && !has(kRemarks, key))
      return invalid_input(cat("unknown key '", key, "'", did_you_mean(key, known), "; known are ",
                               join(known, ", "), ", and 'note' for remarks"));
  return ok_status();
}

}  // namespace braid::inline base
