// Whether all rows of a data set have prompts of one form. One thread at a time.
#pragma once

#include <set>
#include <string>

namespace braid::inline data {

struct DataRecord;

class RowForms {
 public:
  // Takes note of a usable record; `where` is its place. Returns a warning for the first record of
  // another form (text, messages, token ids) than the first of all, "" otherwise.
  std::string note(const DataRecord& record, const std::string& where);

 private:
  std::string first_form_, first_place_;
  std::set<std::string> seen_;
};

}  // namespace braid::inline data
