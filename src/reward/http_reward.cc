// Rewards from an HTTP service with the protocol of OpenRLHF's remote reward
// (openrlhf/cli/serve_rm.py): POST {"query": [prompt + response], "prompts": [...], "labels":
// [...]} gives {"rewards": [...]}, optionally with "scores" and "extra_logs": {name: [...]}.
#include <httplib.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "base/log.h"
#include "base/text.h"
#include "host/process.h"
#include "host/workers.h"
#include "reward/outcome.h"

namespace braid::inline reward {
namespace {

constexpr double kFirstPause_s = 0.1;  // before the second try; doubled each time
constexpr double kLongestPause_s = 5;
constexpr double kReportPause_s = 30;     // between lines about an outage that goes on
constexpr double kQuestionPause_s = 0.1;  // between two looks at whether the scoring ended

struct Url {
  std::string origin;  // "http://host:port"
  std::string path;    // "/get_reward"
};

Result<Url> parse_url(const std::string& text) {
  const size_t scheme = text.find("://");
  const std::string name = text.substr(0, scheme == std::string::npos ? 0 : scheme);
  if (name != "http" && name != "https")
    return invalid_input(cat("url '", text, "' must begin with http:// or https://"));
  const size_t path = text.find('/', scheme + 3);
  if (path == scheme + 3 || text.size() == scheme + 3)
    return invalid_input(cat("url '", text, "' names no host"));
  if (path == std::string::npos) return Url{text, "/"};
  return Url{text.substr(0, path), text.substr(path)};
}

using Seconds = std::chrono::duration<double>;

double seconds_since(Deadline begin) {
  return Seconds(std::chrono::steady_clock::now() - begin).count();
}

// Cuts a client's connection when the deadline passes or the scoring ends: the client's own limits
// are per read, so a server that drips bytes would hold it for ever.
class Watchdog {
 public:
  Watchdog(httplib::Client& client, Deadline deadline, const ScoreWatch& watch)
      : thread_([this, &client, &watch, deadline] {
          std::unique_lock lock(mutex_);
          while (!done_) {
            if (std::chrono::steady_clock::now() >= deadline || watch.ended()) {
              fired_ = true;
              client.stop();
              return;
            }
            finished_.wait_until(lock, std::min(deadline, deadline_in(kQuestionPause_s)),
                                 [this] { return done_; });
          }
        }) {}
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog() { finish(); }

  // Ends the watch; true if the connection was cut.
  bool finish() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    finished_.notify_all();
    if (thread_.joinable()) thread_.join();
    return fired_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable finished_;
  bool done_ = false, fired_ = false;
  std::thread thread_;  // last: starts when the rest is ready
};

// What one POST came to.
struct Reply {
  std::string body;
  RewardOutcome failure;  // used where !ok
  bool ok = false;
  bool may_retry = false;
};

Reply failed_reply(RewardOutcome failure, bool may_retry) {
  return {"", std::move(failure), false, may_retry};
}

bool is_passing(int status) { return status >= 500 || status == 408 || status == 429; }

Json request_of(const std::vector<RewardSample>& samples, size_t begin, size_t end) {
  Json request = {{"query", Json::array()}, {"prompts", Json::array()}, {"labels", Json::array()}};
  for (size_t i = begin; i < end; ++i) {
    request["query"].push_back(samples[i].prompt + samples[i].response);
    request["prompts"].push_back(samples[i].prompt);
    request["labels"].push_back(samples[i].extra.value("label", Json()));
  }
  return request;
}

// The numbers of a list with one entry per sample ([0.5] counts as 0.5), or why it is not one.
Result<std::vector<double>> numbers_of(const Json& list, size_t count, const std::string& name) {
  if (!list.is_array() || list.size() != count)
    return invalid_input(cat("'", name, "' of the answer is not a list of ", count, " numbers"));
  std::vector<double> numbers;
  for (const Json& entry : list) {
    const Json& value = entry.is_array() && entry.size() == 1 ? entry[0] : entry;
    if (!value.is_number())
      return invalid_input(cat("'", name, "' of the answer holds ", excerpt(value.dump()),
                               " where a number is needed"));
    numbers.push_back(value.get<double>());
  }
  return numbers;
}

Status read_logs(const Json& answer, size_t count, std::vector<RewardOutcome>* outcomes) {
  Json logs = answer.value("extra_logs", Json::object());
  if (!logs.is_object()) return invalid_input("'extra_logs' of the answer is not an object");
  if (answer.contains("scores")) logs["scores"] = answer["scores"];
  for (const auto& [name, list] : logs.items()) {
    BRAID_ASSIGN(const std::vector<double> numbers, numbers_of(list, count, name));
    for (size_t i = 0; i < count; ++i) (*outcomes)[i].logs[name] = numbers[i];
  }
  return ok_status();
}

Result<std::vector<RewardOutcome>> read_answer(const std::string& body, size_t count) {
  const Result<Json> answer = parse_json(body, "answer");
  if (!answer.ok() || !answer->is_object())
    return invalid_input(cat("the answer is not a JSON object: ", excerpt(body)));
  if (!answer->contains("rewards"))
    return invalid_input(cat("the answer has no 'rewards': ", excerpt(body)));
  BRAID_ASSIGN(const std::vector<double> rewards,
               numbers_of((*answer)["rewards"], count, "rewards"));
  std::vector<RewardOutcome> outcomes;
  for (const double reward : rewards) outcomes.push_back(value_outcome(reward));
  BRAID_TRY(read_logs(*answer, count, &outcomes));
  return outcomes;
}

// What is said about a server that does not answer. Thread-safe.
class OutageReport {
 public:
  OutageReport(std::string name, double limit_s) : name_(std::move(name)), limit_s_(limit_s) {}

  void failed(const std::string& error) {
    const std::lock_guard lock(mutex_);
    if (!begin_) {
      begin_ = said_ = std::chrono::steady_clock::now();
      log_warning(cat("reward '", name_, "': ", error, "; trying again for up to ", limit_s_,
                      " s (outage_s)"));
    } else if (seconds_since(said_) >= kReportPause_s) {
      said_ = std::chrono::steady_clock::now();
      log_warning(cat("reward '", name_, "': ", error, ", for ",
                      std::lround(seconds_since(*begin_)), " s now; still trying"));
    }
  }

  void answered() {
    const std::lock_guard lock(mutex_);
    if (begin_)
      log_info(cat("reward '", name_, "': answers again after ",
                   format_double(std::round(seconds_since(*begin_) * 10) / 10), " s"));
    begin_.reset();
  }

 private:
  std::string name_;
  double limit_s_;
  std::mutex mutex_;
  std::optional<Deadline> begin_;
  Deadline said_;
};

class HttpReward : public Reward {
 public:
  HttpReward(const RewardOptions& options, Url url)
      : options_(options), url_(std::move(url)), outage_(reward_name(options), options.outage_s) {}

  Result<std::vector<RewardOutcome>> score(const std::vector<RewardSample>& samples,
                                           const ScoreWatch& watch) override {
    std::vector<RewardOutcome> outcomes(samples.size());
    const auto batch = static_cast<size_t>(options_.batch_samples);
    const size_t batches = (samples.size() + batch - 1) / batch;
    BRAID_TRY(for_each_on_workers(
        batches, static_cast<size_t>(options_.workers), [&](size_t, size_t item) {
          if (watch.ended()) return ok_status();
          const size_t begin = item * batch, end = std::min(begin + batch, samples.size());
          const auto scored = score_batch(request_of(samples, begin, end), end - begin, watch);
          std::copy(scored.begin(), scored.end(), outcomes.begin() + static_cast<ptrdiff_t>(begin));
          for (const RewardOutcome& outcome : scored) watch.scored(outcome);
          return ok_status();
        }));
    return outcomes;
  }

 private:
  std::vector<RewardOutcome> score_batch(const Json& request, size_t count,
                                         const ScoreWatch& watch);
  Reply post(const std::string& body, const ScoreWatch& watch) const;
  Reply post_until_answered(const std::string& body, const ScoreWatch& watch);

  RewardOptions options_;
  Url url_;
  OutageReport outage_;
};

std::vector<RewardOutcome> HttpReward::score_batch(const Json& request, size_t count,
                                                   const ScoreWatch& watch) {
  const Reply reply =
      post_until_answered(request.dump(-1, ' ', false, Json::error_handler_t::replace), watch);
  if (!reply.ok) return std::vector<RewardOutcome>(count, reply.failure);
  const auto outcomes = read_answer(reply.body, count);
  if (outcomes.ok()) return *outcomes;
  return std::vector<RewardOutcome>(
      count, error_outcome(cat(options_.url, ": ", outcomes.status().message())));
}

// Waits as long as the pause says, or until the scoring ends.
void pause_for(double pause_s, const ScoreWatch& watch) {
  const Deadline until = deadline_in(pause_s);
  while (!watch.ended() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_until(std::min(until, deadline_in(kQuestionPause_s)));
}

// Tries until there is an answer or an error that trying again does not mend; no try begins later
// than outage_s after the first.
Reply HttpReward::post_until_answered(const std::string& body, const ScoreWatch& watch) {
  const Deadline begin = std::chrono::steady_clock::now();
  double pause_s = kFirstPause_s;
  for (int64_t tried = 1;; ++tried) {
    Reply reply = post(body, watch);
    if (watch.ended() && !reply.ok) return failed_reply({}, false);
    if (reply.ok) outage_.answered();
    if (reply.ok || !reply.may_retry) return reply;
    if (seconds_since(begin) + pause_s > options_.outage_s) {
      reply.failure.error +=
          cat(" (", tried, tried == 1 ? " try in " : " tries in ",
              std::lround(seconds_since(begin)), " s, outage_s is ", options_.outage_s, ")");
      return reply;
    }
    outage_.failed(reply.failure.error);
    pause_for(pause_s, watch);
    pause_s = std::min(2 * pause_s, kLongestPause_s);
  }
}

// What a failure of the connection means; the library has one word for each.
std::string connection_error(httplib::Error error) {
  switch (error) {
    case httplib::Error::Connection:
      return "cannot connect: nothing listens there, or the host is not known";
    case httplib::Error::Read:
      return "the connection ended before an answer came";
    case httplib::Error::Write:
      return "the connection ended while the request was sent";
    case httplib::Error::ConnectionTimeout:
      return "no connection in time";
    default:
      return cat("the request failed: ", httplib::to_string(error));
  }
}

Reply HttpReward::post(const std::string& body, const ScoreWatch& watch) const {
  httplib::Client client(url_.origin);
  const auto limit = std::chrono::milliseconds(static_cast<int64_t>(options_.timeout_s * 1000) + 1);
  client.set_connection_timeout(limit);
  client.set_read_timeout(limit);
  client.set_write_timeout(limit);
  if (!options_.auth_token.empty()) client.set_bearer_token_auth(options_.auth_token);
  const Deadline deadline = deadline_in(options_.timeout_s);
  Watchdog watchdog(client, deadline, watch);
  const httplib::Result result = client.Post(url_.path, body, "application/json");
  const bool cut = watchdog.finish();
  if (!result && (cut || std::chrono::steady_clock::now() >= deadline))
    return failed_reply(
        timeout_outcome(cat(options_.url, ": no answer within ", options_.timeout_s, " s")), true);
  if (!result)
    return failed_reply(error_outcome(cat(options_.url, ": ", connection_error(result.error()))),
                        true);
  if (result->status != 200)
    return failed_reply(
        error_outcome(cat(options_.url, ": status ", result->status, ": ", excerpt(result->body))),
        is_passing(result->status));
  return {result->body, {}, true, false};
}

}  // namespace

Result<std::unique_ptr<Reward>> make_http_reward(const RewardOptions& options) {
  BRAID_ASSIGN(Url url, parse_url(options.url));
  return std::unique_ptr<Reward>(new HttpReward(options, std::move(url)));
}

}  // namespace braid::inline reward
