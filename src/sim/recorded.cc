#include "sim/recorded.h"

#include "base/json.h"
#include "base/text.h"

namespace braid {
namespace {

Status add_row(std::string_view line, const std::string& where, int64_t* step,
               SampleLengths* lengths) {
  BRAID_ASSIGN(const Json row, parse_json(line, where));
  const auto list = [&](const char* key) { return row.contains(key) && row[key].is_array(); };
  if (!row.is_object() || !list("prompt_ids") || !list("response_ids"))
    return invalid_input(cat(where, ": a recorded sample has the lists prompt_ids, response_ids"));
  if (row.contains("step") && row["step"].is_number_integer()) {
    const auto of_row = row["step"].get<int64_t>();
    if (*step < 0) *step = of_row;
    if (of_row != *step) return ok_status();
  }
  lengths->prompt.push_back(static_cast<int64_t>(row["prompt_ids"].size()));
  lengths->response.push_back(static_cast<int64_t>(row["response_ids"].size()));
  return ok_status();
}

Status add_pair(std::string_view line, const std::string& where, SampleLengths* lengths) {
  const size_t space = line.find_first_of(" \t,");
  int64_t prompt = 0, response = 0;
  const bool ok = space != std::string_view::npos &&
                  parse_int(trim(line.substr(0, space)), &prompt) &&
                  parse_int(trim(line.substr(space + 1)), &response);
  if (!ok || prompt < 1 || response < 1)
    return invalid_input(
        cat(where, ": '", line, "' is not a prompt and a response length of at least 1 token"));
  lengths->prompt.push_back(prompt);
  lengths->response.push_back(response);
  return ok_status();
}

}  // namespace

Result<SampleLengths> parse_recorded_lengths(std::string_view text, const std::string& where,
                                             int64_t step) {
  SampleLengths lengths;
  int64_t number = 0;
  for (const std::string& line : split(text, '\n')) {
    const std::string place = cat(where, ":", ++number);
    const std::string_view content = trim(line);
    if (content.empty()) continue;
    BRAID_TRY(content.front() == '{' ? add_row(content, place, &step, &lengths)
                                     : add_pair(content, place, &lengths));
  }
  if (lengths.prompt.empty())
    return invalid_input(cat(where, ": no samples", step >= 0 ? cat(" of step ", step) : ""));
  return lengths;
}

}  // namespace braid
