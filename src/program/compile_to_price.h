// Lists for who judges many plans of one problem (search/): those that compile() makes, without
// verify(), which takes longer than pricing them where devices are many. Who takes a plan compiles
// it. Pure; thread-safe.
#pragma once

#include <functional>
#include <vector>

#include "program/program.h"

namespace braid::inline program {

// Gives the messages that bring a role's weights from one layout to another: those of `plan`, which
// it may have kept from another plan of the problem.
using PlanMessages = std::function<std::vector<Message>()>;
using MessagesOf = std::function<std::vector<Message>(
    const RoleId& role, const ParamLayout& from, const ParamLayout& to, const PlanMessages& plan)>;

// Errors: those of compile(), but for what verify() alone finds. `messages` may be empty.
Result<Program> compile_to_price(const ExecutionPlan& plan, const PlanningProblem& problem,
                                 const MessagesOf& messages = {});

}  // namespace braid::inline program
