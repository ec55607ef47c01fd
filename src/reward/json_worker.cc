#include "reward/json_worker.h"

#include <utility>

#include "base/log.h"
#include "base/text.h"

namespace braid::inline reward {
namespace {

constexpr double kStartTimeoutSeconds = 120;  // a Python reward may import large packages
constexpr double kLastWordsSeconds = 0.5;     // how long an ended child may take to be reaped
constexpr double kOwnDeadlineMargin_s = 10;   // beyond the deadline that the child keeps itself

// The fields of the JSONL line beside ours (ours win), and all of them again under "extra".
Json request_of(const RewardSample& sample, bool batched) {
  Json request = batched ? Json::object() : sample.extra;
  request["extra"] = sample.extra;
  request["id"] = sample.sample_id;
  request["prompt"] = sample.prompt;
  request["messages"] = sample.messages;
  request["response"] = sample.response;
  request["prompt_ids"] = sample.prompt_ids;
  request["response_ids"] = sample.response_ids;
  request["truncated"] = sample.truncated;
  if (!batched && !request.contains("label")) request["label"] = nullptr;
  return request;
}

std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string batch_request(const std::vector<const RewardSample*>& samples,
                          const ScoreWatch& watch) {
  Json request = {{"samples", Json::array()}};
  request["step"] = watch.step;
  request["total_steps"] = watch.total_steps;
  for (const RewardSample* sample : samples)
    request["samples"].push_back(request_of(*sample, true));
  return line_of(request);
}

std::string text_or_dump(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace

void TracebackLog::show(const std::string& reward, int64_t sample, const Json& answer) {
  const auto trace = answer.find("traceback");
  if (trace == answer.end() || !trace->is_string()) return;
  const auto kind = answer.find("kind");
  const std::lock_guard lock(mutex_);
  if (!shown_.insert(text_or_dump(kind == answer.end() ? *trace : *kind)).second) return;
  log_warning(cat("reward '", reward, "', sample ", sample, ": ", trace->get<std::string>(),
                  "(later failures of this kind are only counted)"));
}

Status JsonLineWorker::start(const std::function<bool()>& ended) {
  if (child_ != nullptr) return ok_status();
  BRAID_ASSIGN(child_, ChildProcess::start(options_.process));
  child_->set_interrupt(ended);
  if (!options_.batched) return ok_status();
  Status ready = await_ready();
  if (!ready.ok()) child_.reset();
  return ready;
}

Status JsonLineWorker::await_ready() {
  const Result<std::string> line = child_->read_line(deadline_in(kStartTimeoutSeconds));
  if (!line.ok() && line.status().code() == Code::kStopped) return line.status();
  if (!line.ok())
    return Status(line.status().code(),
                  cat("it does not start: ", line.status().message(), last_words()));
  BRAID_ASSIGN(const Json hello, parse_json(*line, "first line"));
  if (!hello.is_object()) return invalid_input("its first line is not a JSON object");
  if (hello.contains("ready")) {
    ready_.batch = hello.value("batch", ready_.batch);
    ready_.own_deadline = hello.value("own_deadline", false);
    BRAID_ASSIGN(ready_.columns, json_field_or(hello, "columns", std::vector<std::string>()));
    return ok_status();
  }
  tracebacks_->show(options_.name, 0, hello);
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

double JsonLineWorker::request_seconds() const {
  return options_.timeout_s + (ready_.own_deadline ? kOwnDeadlineMargin_s : 0);
}

RewardOutcome JsonLineWorker::give_up(const Status& failure) {
  RewardOutcome outcome;
  if (failure.code() == Code::kDeadline)
    outcome =
        timeout_outcome(cat("no answer within ", request_seconds(), " s (timeout_s); killed"));
  else if (failure.code() != Code::kStopped)
    outcome = error_outcome(cat(failure.message(), last_words()));
  child_.reset();
  return outcome;
}

RewardOutcome JsonLineWorker::read_outcome(const RewardSample& sample, const Json& answer) {
  tracebacks_->show(options_.name, sample.sample_id, answer);
  if (const auto late = answer.find("timeout"); late != answer.end())
    return timeout_outcome(text_or_dump(*late));
  if (const auto error = answer.find("error"); error != answer.end())
    return error_outcome(text_or_dump(*error));
  RewardOutcome outcome = absent_outcome();
  if (!options_.batched || !answer.contains("absent")) {
    const auto reward = answer.find("reward");
    if (reward == answer.end() || !reward->is_number())
      return error_outcome(cat("the answer has no number 'reward': ", excerpt(answer.dump())));
    outcome = value_outcome(reward->get<double>());
  }
  const Json logs = answer.value("logs", Json::object());
  for (const auto& [name, value] : logs.items())
    if (value.is_number()) outcome.logs[name] = value.get<double>();
  return outcome;
}

std::vector<RewardOutcome> JsonLineWorker::read_answers(
    const std::vector<const RewardSample*>& samples, const std::string& line) {
  const auto all = [&](const RewardOutcome& outcome) {
    return std::vector<RewardOutcome>(samples.size(), outcome);
  };
  const Result<Json> answer = parse_json(line, "answer");
  if (!answer.ok() || !answer->is_object())
    return all(give_up(invalid_input(cat("the answer is not a JSON object: ", excerpt(line)))));
  if (!options_.batched && answer->value("id", Json()) != Json(samples[0]->sample_id))
    return all(
        give_up(invalid_input(cat("the answer has not the id of the request: ", excerpt(line)))));
  if (!options_.batched || answer->contains("error"))
    return all(read_outcome(*samples[0], *answer));
  const Json answers = answer->value("answers", Json());
  if (!answers.is_array() || answers.size() != samples.size())
    return all(give_up(invalid_input(cat("the answer does not fit: ", excerpt(line)))));
  std::vector<RewardOutcome> outcomes;
  for (size_t i = 0; i < samples.size(); ++i)
    outcomes.push_back(read_outcome(*samples[i], answers[i]));
  return outcomes;
}

std::vector<RewardOutcome> JsonLineWorker::converse(const std::vector<const RewardSample*>& samples,
                                                    const ScoreWatch& watch) {
  const Deadline deadline = deadline_in(request_seconds());
  const std::string request =
      options_.batched ? batch_request(samples, watch) : line_of(request_of(*samples[0], false));
  const Status sent = child_->write_line(request, deadline);
  if (!sent.ok()) return std::vector<RewardOutcome>(samples.size(), give_up(sent));
  const Result<std::string> line = child_->read_line(deadline);
  if (line.ok()) return read_answers(samples, *line);
  return std::vector<RewardOutcome>(samples.size(), give_up(line.status()));
}

Result<std::vector<RewardOutcome>> JsonLineWorker::ask(
    const std::vector<const RewardSample*>& samples, const ScoreWatch& watch) {
  const Status started = start(watch.ended);
  if (started.code() == Code::kStopped) return std::vector<RewardOutcome>(samples.size());
  if (!started.ok()) return started.at(cat("reward '", options_.name, "'"));
  child_->set_interrupt(watch.ended);
  std::vector<RewardOutcome> outcomes = converse(samples, watch);
  if (child_ == nullptr) return outcomes;
  child_->set_interrupt({});  // the watch ends with the scoring
  log_errors(cat("sample ", samples[0]->sample_id));
  return outcomes;
}

void JsonLineWorker::log_errors(const std::string& context) {
  const std::string errors = child_->take_errors();
  if (!errors.empty())
    log_info(cat("reward '", options_.name, "', ", context, " wrote: ", trim(errors)));
}

}  // namespace braid::inline reward
