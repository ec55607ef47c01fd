#include "report/metric_names.h"

#include <utility>

#include "base/text.h"

namespace braid::inline report {

Status restore_names(const std::string& names, const std::string& where, std::vector<Json>* rows) {
  if (names.empty()) return ok_status();
  BRAID_ASSIGN(const Json json, parse_json(names, where));
  const auto ours = json.find("ours");
  if (ours == json.end() || !ours->is_object())
    return invalid_input(cat(where, ": is no table of names"));
  for (Json& row : *rows) {
    Json renamed = Json::object();
    for (const auto& [name, value] : row.items()) {
      const auto found = ours->find(name);
      renamed[found != ours->end() && found->is_string() ? found->get<std::string>() : name] =
          value;
    }
    row = std::move(renamed);
  }
  return ok_status();
}

}  // namespace braid::inline report
