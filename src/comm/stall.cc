#include "comm/stall.h"

#include <algorithm>
#include <vector>

#include "base/text.h"

namespace braid::inline comm {
namespace {

constexpr size_t kNamedWaiters = 8;  // in a message

std::string still_text(double seconds) {
  return cat("no progress for ", format_seconds(seconds), " (runtime.stall_s)");
}

}  // namespace

// Whether the rank works, has begun to wait only now, or waits with a deadline of its own; else it
// is one of the waiters.
bool StallJudge::goes_on(int64_t rank, const std::optional<std::string>& text, double stall_s,
                         Waiters* waiters) {
  const Beat beat = parse_beat(text.value_or(""));
  const bool waits = beat.waits && beat.waits->seconds > stall_s && !beat.waits->peers.empty();
  if (!waits && text != kDone) {
    working_ = rank;
    return true;
  }
  waiters->emplace(rank, beat);
  return false;
}

// The rank and all that it waits for, directly or through others, where none of them goes on.
std::optional<StallJudge::Waiters> StallJudge::circle(const Beat& first, double stall_s,
                                                      Store& store) {
  Waiters out;
  if (working_) {
    const auto beat = store.look({beat_key(*working_)});
    if (!beat.ok() || goes_on(*working_, (*beat)[0], stall_s, &out)) return std::nullopt;
  }
  out = {{rank_, first}};
  std::vector<int64_t> open = first.waits->peers;
  while (!open.empty()) {
    std::vector<int64_t> asked;
    std::vector<std::string> keys;
    while (!open.empty() && asked.size() < kBeatsAtOnce) {
      const int64_t rank = open.back();
      open.pop_back();
      if (out.count(rank) > 0 || std::count(asked.begin(), asked.end(), rank) > 0) continue;
      asked.push_back(rank);
      keys.push_back(beat_key(rank));
    }
    if (asked.empty()) break;
    const auto beats = store.look(keys);
    if (!beats.ok()) return std::nullopt;
    for (size_t i = 0; i < asked.size(); ++i) {
      if (goes_on(asked[i], (*beats)[i], stall_s, &out)) return std::nullopt;
      if (const auto& waits = out.at(asked[i]).waits)
        open.insert(open.end(), waits->peers.begin(), waits->peers.end());
    }
  }
  return out;
}

// Whether all of them were found before, and all have said since that they still wait: a beat is as
// old as a second, and what has just arrived at one of them may free them all.
bool StallJudge::again(Waiters waiters) {
  const auto same = [](const auto& before, const auto& now) {
    return before.first == now.first && before.second.progress == now.second.progress;
  };
  if (!std::equal(suspects_.begin(), suspects_.end(), waiters.begin(), waiters.end(), same)) {
    suspects_ = std::move(waiters);
    return false;
  }
  return std::all_of(waiters.begin(), waiters.end(), [&](const auto& now) {
    return now.second.number > suspects_.at(now.first).number || now.second.position == kDone;
  });
}

std::optional<RankFailure> StallJudge::judge(const Beat& beat, double now_s, double stall_s,
                                             Store& store) {
  if (progress_ != beat.progress) {
    progress_ = beat.progress;
    progressed_s_ = now_s;
    working_.reset();
    suspects_.clear();
  }
  const double still_s = now_s - progressed_s_;
  if (still_s <= stall_s) return std::nullopt;
  if (!beat.waits) return RankFailure{rank_, still_text(still_s), beat.position, true};
  if (beat.waits->peers.empty()) return std::nullopt;
  const auto waiters = circle(beat, stall_s, store);
  if (!waiters || !again(*waiters)) return std::nullopt;
  std::vector<std::string> texts;
  for (const auto& [rank, waiter] : *waiters)
    if (texts.size() < kNamedWaiters) texts.push_back(cat("rank ", rank, ": ", waiter.position));
  const size_t more = waiters->size() - texts.size();
  return RankFailure{kNoneAlone,
                     cat("ranks wait for each other, and there is ", still_text(still_s), ": ",
                         join(texts, "; "), more > 0 ? cat("; and ", more, " more ranks") : ""),
                     "", true};
}

}  // namespace braid::inline comm
