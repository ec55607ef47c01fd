#include "data/row_forms.h"

#include "base/text.h"
#include "data/dataset.h"

namespace braid::inline data {
namespace {

const char* form_of(const DataRecord& record) {
  if (!record.conversation.is_null()) return "messages";
  return record.prompt.empty() ? "token ids" : "text";
}

}  // namespace

std::string RowForms::note(const DataRecord& record, const std::string& where) {
  const std::string form = form_of(record);
  if (!seen_.insert(form).second) return "";
  if (seen_.size() > 1)
    return cat(where, ": the prompt is ", form, ", that of ", first_place_, " is ", first_form_,
               "; rows of both forms are trained on as they stand. Where they mean the same, write "
               "them alike, or set data.prompt_format: chat, which makes messages of texts");
  first_form_ = form;
  first_place_ = where;
  return "";
}

}  // namespace braid::inline data
