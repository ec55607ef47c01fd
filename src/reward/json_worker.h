// A child process that scores samples over JSON lines: one request line, one answer line. A child
// that misses a deadline, dies or answers nonsense is killed and started again for the next
// request, so a bad request costs its own outcomes only. Used by one thread at a time.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "host/process.h"
#include "reward/outcome.h"

namespace braid::inline reward {

// Tracebacks that were logged: each kind of failure is shown in full once. Thread-safe.
class TracebackLog {
 public:
  // Logs the traceback unless one of this kind was logged before.
  void show(const std::string& reward, int64_t sample, const Json& answer);

 private:
  std::mutex mutex_;
  std::set<std::string> shown_;
};

struct WorkerOptions {
  std::string name;  // of the reward, for messages
  ProcessOptions process;
  double timeout_s = 180;  // per request
  // The protocol of tools/python_reward.py: a first line {"ready": true, ...} or {"fatal": why},
  // and a request holds a list of samples. Else each request is one sample.
  bool batched = false;
};

// What the first line of a batched child says.
struct WorkerReady {
  std::string batch = "sample";      // sample | group | step: the samples of one request
  std::vector<std::string> columns;  // of the data that it cannot do without
  bool own_deadline = false;  // the child gives each sample timeout_s; the request gets a margin
};

class JsonLineWorker {
 public:
  JsonLineWorker(WorkerOptions options, std::shared_ptr<TracebackLog> tracebacks)
      : options_(std::move(options)), tracebacks_(std::move(tracebacks)) {}

  // Makes sure that a child is running. Fails where it cannot be started or reports itself
  // unusable; kStopped once ended() says true.
  Status start(const std::function<bool()>& ended);
  const WorkerReady& ready() const { return ready_; }

  // One outcome per sample; kSkipped ones where the watch ended the wait. REQUIRES: one sample
  // where !batched.
  Result<std::vector<RewardOutcome>> ask(const std::vector<const RewardSample*>& samples,
                                         const ScoreWatch& watch);

 private:
  std::vector<RewardOutcome> converse(const std::vector<const RewardSample*>& samples,
                                      const ScoreWatch& watch);
  std::vector<RewardOutcome> read_answers(const std::vector<const RewardSample*>& samples,
                                          const std::string& line);
  RewardOutcome read_outcome(const RewardSample& sample, const Json& answer);
  RewardOutcome give_up(const Status& failure);
  double request_seconds() const;
  Status await_ready();
  std::string last_words();
  void log_errors(const std::string& context);

  WorkerOptions options_;
  std::shared_ptr<TracebackLog> tracebacks_;
  WorkerReady ready_;
  std::unique_ptr<ChildProcess> child_;
};

}  // namespace braid::inline reward
