#include "session/fetch_calls.h"

#include <utility>
#include <vector>

#include "base/text.h"
#include "comm/transfer_audit.h"
#include "host/work_section.h"
#include "samples/listed_counts.h"

namespace braid::inline session {

FetchCalls::FetchCalls(const StepContext& step, const CallSamples& samples, const RunData& data,
                       CarriedSamples* carried, std::function<Status()> checked)
    : step_(step),
      samples_(samples),
      data_(data),
      carried_(carried),
      checked_(std::move(checked)),
      predicts_(predicts(step.config, step.program)) {}

int64_t FetchCalls::prompts() const {
  return carried_ ? carried_->lacking() : step_.config.rollout.prompts_per_step;
}

Result<std::vector<int32_t>> FetchCalls::read_share(const Call& call) {
  const WorkSection section;
  BRAID_TRY(checked_());
  samples_.rows(call).forget();
  samples_.account(call).begin();
  auto share = step_.reader.read_share(step_.position.cursor, prompts());
  const Status read = share.status().at("data.train");
  const bool unchecked = data_.data.checked() < data_.data.size();
  if (!read.ok() && unchecked)
    return Status{read.code(), cat(read.message(),
                                   "; mend it, and let the data differ from the checkpoint's with "
                                   "checkpoint.allow=[data.train]")};
  BRAID_TRY(read);
  return share;
}

Status FetchCalls::fetch(const Call& call) {
  auto share = read_share(call);
  told_ = share.ok() ? std::move(*share) : std::vector<int32_t>();
  return step_.talk.until_told(share.status());
}

// Of all ranks, after the word in which each says whether it has failed.
Result<std::vector<std::vector<int32_t>>> FetchCalls::tell(const Call& call) {
  const std::string what = cat("the share of ", call.name);
  const int64_t samples = step_.config.rollout.samples_per_prompt;
  const std::vector<int64_t> sizes = told_by_ranks(call, prompts(), samples, step_.ranks());
  std::vector<int32_t> words = {step_.talk.failed_word()};
  words.insert(words.end(), told_.begin(), told_.end());
  words.resize(sizes[step_.rank()], 0);  // of one that has failed
  std::vector<std::vector<int32_t>> said;
  BRAID_TRY(audited(
      what, [&] { return listed_of_fetch(call, prompts(), samples, step_.ranks()); },
      [&]() -> Status {
        BRAID_ASSIGN(said, step_.exchange.gather_words(words, sizes, what));
        return ok_status();
      }));
  BRAID_TRY(step_.talk.hear(said, what));
  for (std::vector<int32_t>& of_rank : said) of_rank.erase(of_rank.begin());
  return said;
}

Status FetchCalls::share(const Call& call) {
  BRAID_ASSIGN(const auto told, tell(call));
  const WorkSection section;
  SampleStore& store = samples_.store(call);
  BRAID_TRY(step_.reader.begin(step_.position.cursor, told, store).at("data.train"));
  step_.position.cursor += prompts();
  if (carried_) carried_->join();
  if (predicts_) samples_.rows(call).predict(predicted_lengths(store, data_.data, history_));
  return ok_status();
}

Status FetchCalls::read_for(const Call& call, SamplePart part) const {
  if (step_.ranks() == 1 || !step_.reader.needed_by(call)) return ok_status();
  const WorkSection section;
  const auto rows = samples_.rows(call).read_by_rank(step_.id_of(call), step_.position.step, part);
  return step_.reader.read(braid::rows_of(rows[step_.rank()]), samples_.store(call))
      .at("data.train");
}

void FetchCalls::end_step() {
  if (predicts_) note_in_history(step_.store, data_.data, &history_);
}

}  // namespace braid::inline session
