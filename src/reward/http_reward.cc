// Rewards from an HTTP service with the protocol of OpenRLHF's remote reward
// (openrlhf/cli/serve_rm.py): POST {"query": [prompt + response], "prompts": [...], "labels":
// [...]} gives {"rewards": [...]}, optionally with "scores" and "extra_logs": {name: [...]}.
#include <httplib.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/text.h"
#include "host/process.h"
#include "host/workers.h"
#include "reward/outcome.h"

namespace braid {
namespace {

constexpr double kFirstPauseSeconds = 0.1;  // before the second try; doubled each time
constexpr double kLongestPauseSeconds = 5;
constexpr size_t kBodyExcerptBytes = 200;

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

// Cuts a client's connection when the deadline passes: the client's own limits are per read, so a
// server that drips bytes would hold it for ever.
class Watchdog {
 public:
  Watchdog(httplib::Client& client, Deadline deadline)
      : thread_([this, &client, deadline] {
          std::unique_lock lock(mutex_);
          if (!finished_.wait_until(lock, deadline, [this] { return done_; })) {
            fired_ = true;
            client.stop();
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

std::string excerpt(const std::string& body) {
  const std::string_view text = trim(body);
  return text.size() <= kBodyExcerptBytes ? std::string(text)
                                          : cat(text.substr(0, kBodyExcerptBytes), "...");
}

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

class HttpReward : public Reward {
 public:
  HttpReward(const RewardOptions& options, Url url) : options_(options), url_(std::move(url)) {}

  Result<std::vector<RewardOutcome>> score(const std::vector<RewardSample>& samples) override {
    std::vector<RewardOutcome> outcomes(samples.size());
    const auto batch = static_cast<size_t>(options_.batch_samples);
    const size_t batches = (samples.size() + batch - 1) / batch;
    BRAID_TRY(for_each_on_workers(
        batches, static_cast<size_t>(options_.workers), [&](size_t, size_t item) {
          const size_t begin = item * batch, end = std::min(begin + batch, samples.size());
          const auto scored = score_batch(request_of(samples, begin, end), end - begin);
          std::copy(scored.begin(), scored.end(), outcomes.begin() + static_cast<ptrdiff_t>(begin));
          return ok_status();
        }));
    return outcomes;
  }

 private:
  std::vector<RewardOutcome> score_batch(const Json& request, size_t count) const;
  Reply post(const std::string& body) const;
  Reply post_with_retries(const std::string& body) const;

  RewardOptions options_;
  Url url_;
};

std::vector<RewardOutcome> HttpReward::score_batch(const Json& request, size_t count) const {
  const Reply reply =
      post_with_retries(request.dump(-1, ' ', false, Json::error_handler_t::replace));
  if (!reply.ok) return std::vector<RewardOutcome>(count, reply.failure);
  const auto outcomes = read_answer(reply.body, count);
  if (outcomes.ok()) return *outcomes;
  return std::vector<RewardOutcome>(
      count, error_outcome(cat(options_.url, ": ", outcomes.status().message())));
}

Reply HttpReward::post_with_retries(const std::string& body) const {
  double pause_s = kFirstPauseSeconds;
  for (int64_t tried = 1;; ++tried) {
    Reply reply = post(body);
    if (reply.ok || !reply.may_retry) return reply;
    if (tried >= options_.retries) {
      reply.failure.error += cat(" (tried ", tried, tried == 1 ? " time)" : " times)");
      return reply;
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(pause_s));
    pause_s = std::min(2 * pause_s, kLongestPauseSeconds);
  }
}

Reply HttpReward::post(const std::string& body) const {
  httplib::Client client(url_.origin);
  const auto limit = std::chrono::milliseconds(static_cast<int64_t>(options_.timeout_s * 1000) + 1);
  client.set_connection_timeout(limit);
  client.set_read_timeout(limit);
  client.set_write_timeout(limit);
  if (!options_.auth_token.empty()) client.set_bearer_token_auth(options_.auth_token);
  const Deadline deadline = deadline_in(options_.timeout_s);
  Watchdog watchdog(client, deadline);
  const httplib::Result result = client.Post(url_.path, body, "application/json");
  const bool cut = watchdog.finish();
  if (!result && (cut || std::chrono::steady_clock::now() >= deadline))
    return failed_reply(
        timeout_outcome(cat(options_.url, ": no answer within ", options_.timeout_s, " s")), true);
  if (!result)
    return failed_reply(error_outcome(cat(options_.url, ": ", httplib::to_string(result.error()))),
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

}  // namespace braid
