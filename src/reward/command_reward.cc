// Rewards computed by child processes that speak JSON lines: one request line per sample, one
// answer line each. A child that misses a deadline, dies or answers nonsense is killed and started
// again for the next sample, so one bad sample costs one outcome.
#include <algorithm>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "host/process.h"
#include "host/workers.h"
#include "reward/outcome.h"
#include "reward/python_reward_script.h"

namespace braid {
namespace {

using Kind = RewardOutcome::Kind;

constexpr double kStartTimeoutSeconds = 120;  // a Python reward may import large packages
constexpr double kLastWordsSeconds = 0.5;     // how long an ended child may take to be reaped
constexpr size_t kExcerptBytes = 200;

std::string excerpt(std::string_view text) {
  const std::string_view trimmed = trim(text);
  if (trimmed.size() <= kExcerptBytes) return std::string(trimmed);
  return cat(trimmed.substr(0, kExcerptBytes), "...");
}

// The fields of the JSONL line beside ours (ours win), and all of them again under "extra".
Json request_of(const RewardSample& sample) {
  Json request = sample.extra;
  request["extra"] = sample.extra;
  request["id"] = sample.sample_id;
  request["prompt"] = sample.prompt;
  request["response"] = sample.response;
  request["prompt_ids"] = sample.prompt_ids;
  request["response_ids"] = sample.response_ids;
  request["truncated"] = sample.truncated;
  if (!request.contains("label")) request["label"] = nullptr;
  return request;
}

std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

struct WorkerOptions {
  std::string name;  // of the reward, for messages
  ProcessOptions process;
  double timeout_s = 180;  // per sample
  bool handshake = false;  // the child's first line says {"ready": true} or {"fatal": why}
};

// One child process and its conversation. Used by one thread at a time.
class JsonLineWorker {
 public:
  explicit JsonLineWorker(WorkerOptions options) : options_(std::move(options)) {}

  // Makes sure that a child is running. Fails where it cannot be started or reports itself
  // unusable.
  Status start();

  Result<RewardOutcome> ask(const RewardSample& sample);

 private:
  RewardOutcome converse(const RewardSample& sample);
  RewardOutcome read_answer(const RewardSample& sample, const std::string& line);
  RewardOutcome give_up(const Status& failure);
  Status await_ready();
  std::string last_words();
  void log_errors(const std::string& context);

  WorkerOptions options_;
  std::unique_ptr<ChildProcess> child_;
};

Status JsonLineWorker::start() {
  if (child_ != nullptr) return ok_status();
  BRAID_ASSIGN(child_, ChildProcess::start(options_.process));
  if (!options_.handshake) return ok_status();
  Status ready = await_ready();
  if (!ready.ok()) child_.reset();
  return ready;
}

Status JsonLineWorker::await_ready() {
  const Result<std::string> line = child_->read_line(deadline_in(kStartTimeoutSeconds));
  if (!line.ok())
    return Status(line.status().code(),
                  cat("it does not start: ", line.status().message(), last_words()));
  BRAID_ASSIGN(const Json hello, parse_json(*line, "first line"));
  if (!hello.is_object()) return invalid_input("its first line is not a JSON object");
  if (hello.contains("ready")) return ok_status();
  if (hello.contains("traceback"))
    log_warning(cat("reward '", options_.name, "': ", hello["traceback"].get<std::string>()));
  return invalid_input(hello.value("fatal", "it does not say that it is ready"));
}

// How the child ended and what it last wrote to standard error; it is not used afterwards.
std::string JsonLineWorker::last_words() {
  const Result<std::string> ending = child_->wait(deadline_in(kLastWordsSeconds));
  std::string words = ending.ok() ? cat("; it was ", *ending) : "";
  if (ending.ok() && ending->rfind("exited", 0) == 0) words = cat("; it ", *ending);
  const std::string errors = child_->take_errors();
  if (errors.empty()) return words;
  log_warning(cat("reward '", options_.name, "' wrote: ", trim(errors)));
  const size_t line = trim(errors).rfind('\n');
  const std::string_view last =
      line == std::string::npos ? trim(errors) : trim(errors).substr(line);
  return cat(words, "; it wrote: ", excerpt(last));
}

RewardOutcome JsonLineWorker::give_up(const Status& failure) {
  RewardOutcome outcome =
      failure.code() == Code::kDeadline
          ? timeout_outcome(cat("no answer within ", options_.timeout_s, " s; killed"))
          : error_outcome(cat(failure.message(), last_words()));
  child_.reset();
  return outcome;
}

RewardOutcome JsonLineWorker::read_answer(const RewardSample& sample, const std::string& line) {
  const Result<Json> answer = parse_json(line, "answer");
  if (!answer.ok() || !answer->is_object())
    return give_up(invalid_input(cat("the answer is not a JSON object: ", excerpt(line))));
  if (answer->value("id", Json()) != Json(sample.sample_id))
    return give_up(invalid_input(cat("the answer has not the id of the request: ", excerpt(line))));
  if (const auto trace = answer->find("traceback"); trace != answer->end() && trace->is_string())
    log_warning(cat("reward '", options_.name, "', sample ", sample.sample_id, ": ",
                    trace->get<std::string>()));
  if (const auto error = answer->find("error"); error != answer->end())
    return error_outcome(error->is_string() ? error->get<std::string>() : error->dump());
  const auto reward = answer->find("reward");
  if (reward == answer->end() || !reward->is_number())
    return error_outcome(cat("the answer has no number 'reward': ", excerpt(line)));
  RewardOutcome outcome = value_outcome(reward->get<double>());
  const Json logs = answer->value("logs", Json::object());
  for (const auto& [name, value] : logs.items())
    if (value.is_number()) outcome.logs[name] = value.get<double>();
  return outcome;
}

RewardOutcome JsonLineWorker::converse(const RewardSample& sample) {
  const Deadline deadline = deadline_in(options_.timeout_s);
  const Status sent = child_->write_line(line_of(request_of(sample)), deadline);
  if (!sent.ok()) return give_up(sent);
  const Result<std::string> line = child_->read_line(deadline);
  return line.ok() ? read_answer(sample, *line) : give_up(line.status());
}

Result<RewardOutcome> JsonLineWorker::ask(const RewardSample& sample) {
  if (Status started = start(); !started.ok())
    return started.at(cat("reward '", options_.name, "'"));
  RewardOutcome outcome = converse(sample);
  if (child_ != nullptr) log_errors(cat("sample ", sample.sample_id));
  return outcome;
}

void JsonLineWorker::log_errors(const std::string& context) {
  const std::string errors = child_->take_errors();
  if (!errors.empty())
    log_info(cat("reward '", options_.name, "', ", context, " wrote: ", trim(errors)));
}

class ProcessReward : public Reward {
 public:
  ProcessReward(const WorkerOptions& options, int64_t workers) {
    for (int64_t i = 0; i < workers; ++i) workers_.emplace_back(options);
  }

  Status start_first() { return workers_.front().start(); }

  Result<std::vector<RewardOutcome>> score(const std::vector<RewardSample>& samples) override {
    std::vector<RewardOutcome> outcomes(samples.size());
    BRAID_TRY(for_each_on_workers(
        samples.size(), workers_.size(), [&](size_t worker, size_t item) -> Status {
          BRAID_ASSIGN(outcomes[item], workers_[worker].ask(samples[item]));
          return ok_status();
        }));
    return outcomes;
  }

 private:
  std::vector<JsonLineWorker> workers_;
};

WorkerOptions worker_options(const RewardOptions& options, std::vector<std::string> argv) {
  WorkerOptions worker;
  worker.name = reward_name(options);
  worker.process.argv = std::move(argv);
  worker.process.memory_limit_bytes = options.memory_mb << 20;
  worker.timeout_s = options.timeout_s;
  return worker;
}

}  // namespace

Result<std::unique_ptr<Reward>> make_command_reward(const RewardOptions& options) {
  return std::unique_ptr<Reward>(
      new ProcessReward(worker_options(options, options.command), options.workers));
}

Result<std::unique_ptr<Reward>> make_python_reward(const RewardOptions& options) {
  WorkerOptions worker =
      worker_options(options, {"python3", "-c", std::string(kPythonRewardScript), options.path,
                               options.function, options.signature});
  worker.handshake = true;
  auto reward = std::make_unique<ProcessReward>(worker, options.workers);
  BRAID_TRY(reward->start_first());
  return std::unique_ptr<Reward>(std::move(reward));
}

}  // namespace braid
