#include "session/step_context.h"

#include <optional>

#include "base/log.h"
#include "base/text.h"
#include "interpret/interpreter.h"

namespace braid::inline session {

bool StepContext::leads(CallId call) const { return rank() == rows.first_rank(call); }

bool StepContext::all_take_part(CallId call) const { return rows.ranks_of(call) == ranks(); }

Status too_little_memory(const std::string& why) {
  return out_of_memory(
      cat(why.empty() ? kElsewhere : why, ", with one sample in each micro-batch"));
}

bool cut_smaller(const StepContext& step, const Call& call, CallRows& rows, size_t minibatch,
                 const std::string& why, SamplePart part) {
  const CallId id = step.id_of(call);
  const std::optional<int64_t> tokens = rows.cut_smaller(id, step.position.step, minibatch, part);
  if (!tokens) return false;
  ++step.record.repeats[call.name];
  if (step.leads(id))
    log_warning(cat("call ", call.name, ": out of memory (", why.empty() ? kElsewhere : why,
                    "); it goes on with micro-batches of at most ", *tokens,
                    " tokens (train.micro_tokens)"));
  return true;
}

}  // namespace braid::inline session
