#include "base/json.h"

#include <set>
#include <vector>

namespace braid {
namespace {

// Follows the parser's events and remembers the first key that occurs twice in one object.
class DuplicateKeyGuard {
 public:
  bool operator()(int /*depth*/, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys_.emplace_back();
    if (event == Json::parse_event_t::object_end) keys_.pop_back();
    if (event == Json::parse_event_t::key) {
      const std::string key = parsed.get<std::string>();
      if (!keys_.back().insert(key).second && duplicate_.empty()) duplicate_ = key;
    }
    return true;
  }
  const std::string& duplicate() const { return duplicate_; }

 private:
  std::vector<std::set<std::string>> keys_;
  std::string duplicate_;
};

}  // namespace

Result<Json> parse_json(std::string_view text, const std::string& where) {
  DuplicateKeyGuard guard;
  try {
    Json parsed = Json::parse(text.begin(), text.end(), std::ref(guard));
    if (!guard.duplicate().empty())
      return invalid_input(cat(where, ": key '", guard.duplicate(), "' occurs twice; remove one"));
    return parsed;
  } catch (const nlohmann::json::exception& error) {
    return invalid_input(cat(where, ": not valid JSON: ", error.what()));
  }
}

}  // namespace braid
