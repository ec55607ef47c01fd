// Asking every reward of the list, all at the same time.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "base/text.h"
#include "host/progress.h"
#include "host/workers.h"
#include "reward/reward.h"

namespace braid::inline reward {
namespace {

constexpr double kLongestReportPause_s = 60;

// How many samples of each reward are still out, and the thread that says so while it takes long.
class Progress {
 public:
  Progress(std::vector<std::string> names, size_t samples, double report_after_s)
      : names_(std::move(names)), samples_(samples), scored_(names_.size()) {
    thread_ = std::thread([this, report_after_s] { report(report_after_s); });
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    finished_.notify_all();
    thread_.join();
  }

  void add(size_t reward) { ++scored_[reward]; }

  // "'judge': 12 of 64 samples, 'rm': ..."; "" where nothing is out.
  std::string out() const {
    std::vector<std::string> texts;
    for (size_t i = 0; i < names_.size(); ++i) {
      const size_t scored = std::min<size_t>(scored_[i], samples_);
      if (scored < samples_ && !names_[i].empty())
        texts.push_back(
            cat("'", names_[i], "': ", samples_ - scored, " of ", samples_, " samples"));
    }
    return join(texts, ", ");
  }

 private:
  void report(double pause_s) {
    const auto begin = std::chrono::steady_clock::now();
    std::unique_lock lock(mutex_);
    while (!finished_.wait_for(lock, std::chrono::duration<double>(pause_s),
                               [this] { return done_; })) {
      const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
      if (const std::string text = out(); !text.empty())
        log_info(cat("rewards are out for ", std::lround(waited.count()), " s: ", text));
      pause_s = std::min(2 * pause_s, kLongestReportPause_s);
    }
  }

  std::vector<std::string> names_;  // "" for a reward that is not asked
  size_t samples_;
  std::vector<std::atomic<size_t>> scored_;
  std::mutex mutex_;
  std::condition_variable finished_;
  bool done_ = false;
  std::thread thread_;  // last: starts when the rest is ready
};

std::vector<std::string> asked_names(const std::vector<std::unique_ptr<Reward>>& rewards,
                                     const std::vector<RewardOptions>& options) {
  std::vector<std::string> names;
  for (size_t i = 0; i < rewards.size(); ++i)
    names.push_back(rewards[i] ? reward_name(options[i]) : "");
  return names;
}

Result<std::vector<RewardOutcome>> score_checked(Reward& reward,
                                                 const std::vector<RewardSample>& samples,
                                                 const ScoreWatch& watch) {
  BRAID_ASSIGN(std::vector<RewardOutcome> outcomes, reward.score(samples, watch));
  BRAID_CHECK(outcomes.size() == samples.size(), "a reward gives one outcome per sample");
  return outcomes;
}

// The samples of every batch that holds a failure, in order.
std::vector<size_t> failed_batches(const Reward& reward, const std::vector<RewardSample>& samples,
                                   const std::vector<RewardOutcome>& outcomes) {
  std::vector<size_t> items;
  for (const std::vector<size_t>& batch : reward.batches(samples)) {
    const bool failed = std::any_of(batch.begin(), batch.end(),
                                    [&](size_t item) { return is_failure(outcomes[item]); });
    if (failed) items.insert(items.end(), batch.begin(), batch.end());
  }
  return items;
}

// Scores failed batches again; returns how many samples these were.
Result<int64_t> retry_failed(Reward& reward, const std::vector<RewardSample>& samples,
                             const ScoreWatch& watch, std::vector<RewardOutcome>* outcomes) {
  const std::vector<size_t> items = failed_batches(reward, samples, *outcomes);
  if (items.empty() || watch.ended()) return int64_t{0};
  std::vector<RewardSample> again;
  for (const size_t item : items) again.push_back(samples[item]);
  BRAID_ASSIGN(std::vector<RewardOutcome> fresh, score_checked(reward, again, watch));
  for (size_t i = 0; i < items.size(); ++i) (*outcomes)[items[i]] = std::move(fresh[i]);
  return static_cast<int64_t>(items.size());
}

// http tries by itself, until outage_s.
int64_t further_tries(const RewardOptions& options) {
  return options.on_error == "retry" && options.type != "http" ? options.retries : 0;
}

// One scoring of all rewards.
class Collection {
 public:
  Collection(std::vector<std::unique_ptr<Reward>>& rewards,
             const std::vector<RewardOptions>& options, const std::vector<RewardSample>& samples,
             const ScoreContext& context)
      : rewards_(rewards),
        options_(options),
        samples_(samples),
        context_(context),
        retried_(rewards.size()),
        progress_(asked_names(rewards, options), samples.size(), context.report_after_s) {
    result_.outcomes.resize(rewards.size());
  }

  Result<RewardOutcomes> run() {
    BRAID_TRY(for_each_on_workers(rewards_.size(), rewards_.size(), [&](size_t, size_t item) {
      const Status status = rewards_[item] ? score(item) : ok_status();
      if (!status.ok()) ended_ = true;
      return status;
    }));
    if (!ended_ && any_skipped())
      return Status(Code::kStopped,
                    cat("reward: stopped while samples were out: ", progress_.out()));
    for (const int64_t count : retried_) result_.retried += count;
    return std::move(result_);
  }

 private:
  bool interrupted() const { return context_.interrupted && context_.interrupted(); }

  bool any_skipped() const {
    for (const std::vector<RewardOutcome>& outcomes : result_.outcomes)
      for (const RewardOutcome& outcome : outcomes)
        if (outcome.kind == RewardOutcome::Kind::kSkipped) return true;
    return false;
  }

  ScoreWatch watch_of(size_t item) {
    const bool stops = options_[item].on_error == "stop" && !context_.show_everything;
    ScoreWatch watch;
    watch.step = context_.step;
    watch.total_steps = context_.total_steps;
    watch.ended = [this] { return ended_ || interrupted(); };
    watch.scored = [this, item, stops](const RewardOutcome& outcome) {
      note_progress();
      if (outcome.kind == RewardOutcome::Kind::kSkipped) return;
      progress_.add(item);
      if (stops && is_failure(outcome)) ended_ = true;
    };
    return watch;
  }

  Status score(size_t item) {
    const ScoreWatch watch = watch_of(item);
    std::vector<RewardOutcome>& outcomes = result_.outcomes[item];
    BRAID_ASSIGN(outcomes, score_checked(*rewards_[item], samples_, watch));
    for (int64_t tries = further_tries(options_[item]); tries > 0; --tries) {
      BRAID_ASSIGN(const int64_t again, retry_failed(*rewards_[item], samples_, watch, &outcomes));
      if (again == 0) break;
      retried_[item] += again;
    }
    return ok_status();
  }

  std::vector<std::unique_ptr<Reward>>& rewards_;
  const std::vector<RewardOptions>& options_;
  const std::vector<RewardSample>& samples_;
  const ScoreContext& context_;
  RewardOutcomes result_;
  std::vector<int64_t> retried_;
  std::atomic<bool> ended_{false};  // by a failure
  Progress progress_;
};

}  // namespace

Result<RewardOutcomes> collect_outcomes(std::vector<std::unique_ptr<Reward>>& rewards,
                                        const std::vector<RewardOptions>& options,
                                        const std::vector<RewardSample>& samples,
                                        const ScoreContext& context) {
  BRAID_CHECK(rewards.size() == options.size(), "one reward per entry of the list");
  return Collection(rewards, options, samples, context).run();
}

}  // namespace braid::inline reward
