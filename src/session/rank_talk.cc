#include "session/rank_talk.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "comm/transfer_audit.h"
#include "samples/call_groups.h"

namespace braid::inline session {
namespace {

std::string command_text(RankTalk::Command command, int64_t steps, bool within) {
  using Command = RankTalk::Command;
  const std::string where = within ? cat("within step ", steps + 1) : cat("after step ", steps);
  switch (command) {
    case Command::kStep:
      return cat("step ", steps + 1);
    case Command::kEvaluate:
      return cat("evaluation ", where);
    case Command::kSave:
    case Command::kFinishSave:
      return cat("checkpoint ", where);
    case Command::kExport:
      return cat("export ", where);
    case Command::kDismiss:
      break;
  }
  return cat("ending ", where);
}

}  // namespace

void RankTalk::note(const std::string& place, const std::string& instruction) const {
  if (world_ != nullptr) world_->position().enter(place, instruction);
}

void RankTalk::note_begin(const Word& word, int64_t steps, bool within) const {
  if (world_ == nullptr) return;
  world_->position().enter(command_text(word.command, steps, within));
  world_->set_stall_s(static_cast<double>(word.stall_ms) * 1e-3);
}

Status RankTalk::announce(const Word& word, int64_t steps, bool within) {
  if (ranks() == 1 || rank() != 0) return ok_status();
  note_begin(word, steps, within);
  together_ = true;
  const at::Tensor numbers = at::tensor(
      {static_cast<int64_t>(word.command), word.hand_over_below, word.stall_ms}, at::kLong);
  return exchange_.everyone()->broadcast(numbers, 0, "what comes next").wait();
}

Result<RankTalk::Word> RankTalk::next_word(int64_t steps, bool within) {
  world_->position().enter(cat("waiting for rank 0 after step ", steps));
  const at::Tensor numbers = at::tensor({0, 0, 0}, at::kLong);
  BRAID_TRY(exchange_.everyone()->broadcast(numbers, 0, "what comes next").wait());
  const auto* const n = numbers.const_data_ptr<int64_t>();
  const Word word{static_cast<Command>(n[0]), n[1], n[2]};
  note_begin(word, steps, within);
  return word;
}

void RankTalk::begin_step() {
  failed_alike_ = false;
  untold_ = ok_status();
}

Status RankTalk::until_told(Status own) {
  if (ranks() == 1) return own;
  if (untold_.ok()) untold_ = std::move(own);
  return ok_status();
}

// Of all ranks, each of which says its own, or nothing.
Status RankTalk::first_failure(const std::string& what) {
  const RanksTalk talk;
  const Status own = std::exchange(untold_, ok_status());
  if (ranks() == 1) return own;
  const Json failed = {{"code", own.code()}, {"message", own.message()}};
  BRAID_ASSIGN(
      const auto texts,
      exchange_.gather_text(
          own.ok() ? "" : failed.dump(-1, ' ', false, Json::error_handler_t::replace), what));
  for (size_t from = 0; from < texts.size(); ++from) {
    if (texts[from].empty()) continue;
    BRAID_ASSIGN(const Json failure, parse_json(texts[from], "the failure of a rank"));
    failed_alike_ = true;
    return Status(failure["code"].get<Code>(),
                  cat("rank ", from, ": ", failure["message"].get<std::string>()));
  }
  return ok_status();
}

Status RankTalk::hear(const std::vector<std::vector<int32_t>>& said, const std::string& what) {
  const bool failed = std::any_of(said.begin(), said.end(),
                                  [](const auto& of_rank) { return of_rank.front() != 0; });
  return failed ? first_failure(what) : ok_status();
}

Status RankTalk::all_well(const std::string& what) {
  const RanksTalk talk;
  BRAID_ASSIGN(const bool failed, on_any_rank(!untold_.ok(), exchange_.everyone(), what));
  return failed ? first_failure(what) : ok_status();
}

Status RankTalk::agree(const Status& own, const std::string& what) {
  failed_alike_ = false;
  if (ranks() == 1) return own;
  untold_ = own;
  const Status told = all_well(what);
  if (failed_alike_) part();
  return told;
}

Status RankTalk::fail_alike(bool all_meet, const Status& decided, const Status& own) {
  if (!all_meet || ranks() == 1) return decided;
  untold_ = own;
  BRAID_TRY(first_failure("why the call ends"));
  failed_alike_ = true;
  return decided;
}

}  // namespace braid::inline session
