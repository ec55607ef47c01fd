#include "runtime/session.h"

#include <ATen/Parallel.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "host/machine.h"
#include "runtime/roles.h"
#include "runtime/run_identity.h"
#include "runtime/run_state.h"
#include "runtime/step_metrics.h"
#include "runtime/stop_signal.h"
#include "schedule/schedule.h"

namespace braid {
namespace {

// Whether the rewards of the list are asked; a replayed rollout brings their values.
bool asks_rewards(const Config& config, const Graph& graph) {
  return generates(graph) && config.rollout.replay.empty();
}

Status check_options(const Config& config, const Graph& graph) {
  BRAID_TRY(check_functions(graph));
  BRAID_TRY(validate(config.algorithm));
  BRAID_TRY(check_rewards(config.reward));
  BRAID_TRY(validate(config.optim.actor, "optim.actor"));
  BRAID_TRY(validate(config.optim.critic, "optim.critic"));
  return validate(config.optim.reward, "optim.reward");
}

// The entry of a report for the whole step beside those of its calls.
constexpr const char* kStepSeconds = "";

const Field* find_field(const Graph& graph, const std::string& name) {
  for (const Call& call : graph.calls)
    for (const Field& field : call.writes)
      if (field.name == name) return &field;
  return nullptr;
}

// The graph with the roles that a rank has calls of.
Graph roles_on(const Program& program, int64_t rank) {
  Graph graph = program.graph;
  if (program.calls.empty()) return graph;
  std::erase_if(graph.roles, [&](const RoleSpec& spec) {
    for (size_t i = 0; i < graph.calls.size(); ++i) {
      const auto& devices = program.calls[i].mesh.devices;
      const DeviceId self{static_cast<int>(rank)};
      if (graph.calls[i].role == spec.role &&
          std::find(devices.begin(), devices.end(), self) != devices.end())
        return false;
    }
    return true;
  });
  return graph;
}

Status check_world(const Program& program, const World* world) {
  const int64_t ranks = world == nullptr ? 1 : world->world_size();
  const auto planned = static_cast<int64_t>(program.ranks.size());
  if (ranks == planned) return ok_status();
  return invalid_input(cat("the plan is for ", planned, " devices, this job has ", ranks,
                           " processes; start one process per device, or plan for ", ranks));
}

// The cores of a machine are shared by its ranks.
void set_threads(const Config& config, const World* world) {
  if (config.train.threads > 0) return at::set_num_threads(static_cast<int>(config.train.threads));
  if (world != nullptr && world->world_size() > 1)
    at::set_num_threads(static_cast<int>(
        threads_per_rank(std::thread::hardware_concurrency(), world->membership().local_size)));
}

Inferred inferred_of(const Call& call) {
  if (call.function == "scores") return Inferred::kScores;
  return call.function == "logprobs" ? Inferred::kLogprobs : Inferred::kValues;
}

}  // namespace

struct Session::Loaded {
  Communicator* everyone = nullptr;
  RunData data;
  Roles roles;
  std::vector<std::unique_ptr<Reward>> rewards;
  RewardModels reward_models;
};

Status check_functions(const Graph& graph) {
  for (const Call& call : graph.calls) {
    if (call.kind == CallKind::kCompute)
      BRAID_TRY(find_compute(call.function).status().at(cat("call ", call.name)));
    if (call.kind == CallKind::kTrainStep)
      BRAID_TRY(find_loss(call.function).status().at(cat("call ", call.name)));
  }
  return ok_status();
}

Result<std::unique_ptr<Session>> Session::create(const Config& config, const Program& program,
                                                 World* world) {
  const Graph& graph = program.graph;
  BRAID_TRY(check_options(config, graph));
  BRAID_TRY(check_executable(program));
  BRAID_TRY(check_world(program, world));
  set_threads(config, world);
  Loaded loaded;
  if (world != nullptr && world->world_size() > 1) {
    BRAID_ASSIGN(loaded.everyone, world->everyone());
  }
  BRAID_ASSIGN(loaded.data, load_run_data(config, config.data.train, data_need(graph)));
  const bool asks = asks_rewards(config, graph);
  if (asks && config.reward.empty())
    return invalid_input(
        "reward: the list is empty; an algorithm that generates needs at least one reward");
  if (asks) {
    BRAID_ASSIGN(loaded.rewards, make_rewards(config.reward));
  }
  const int64_t rank = world == nullptr ? 0 : world->global_rank();
  BRAID_ASSIGN(loaded.roles, load_roles(config, roles_on(program, rank)));
  if (asks) {
    BRAID_ASSIGN(loaded.reward_models, load_reward_models(config, loaded.roles));
  }
  return std::unique_ptr<Session>(new Session(config, program, world, std::move(loaded)));
}

Session::Session(const Config& config, const Program& program, World* world, Loaded loaded)
    : config_(config),
      program_(program),
      world_(world),
      data_(std::move(loaded.data)),
      store_(program.graph),
      rows_(config_, program_, store_),
      exchange_(loaded.everyone, store_),
      roles_(std::move(loaded.roles)),
      generation_(config_.rollout, config_.train.seed, data_.tokenizer_or_null()),
      inference_(config_.rollout.temperature),
      training_(config_, program_.graph, roles_, store_, metrics_),
      scoring_(config_, data_.tokenizer_or_null(), std::move(loaded.rewards),
               std::move(loaded.reward_models)) {}

CallId Session::id_of(const Call& call) const {
  return CallId{static_cast<int32_t>(&call - program_.graph.calls.data())};
}

// Rewards see all samples of a step on one rank, since a list may look at groups; models score what
// the deal gives their rank, and a replayed rollout is where it was read.
std::vector<Rows> Session::scored_rows(CallId call) {
  for (size_t i = 0; i < program_.graph.calls.size(); ++i)
    if (!config_.rollout.replay.empty() && program_.graph.calls[i].kind == CallKind::kGenerate)
      return rows_.by_rank(CallId{static_cast<int32_t>(i)}, position_.step);
  std::vector<Rows> all = rows_.by_rank(call, position_.step);
  if (uses_model(program_.graph.calls[call.value])) return all;
  bool first = true;
  for (Rows& rows : all)
    if (!rows.empty() && !std::exchange(first, false)) rows.clear();
  return all;
}

Status Session::before_call(CallId id) {
  const Call& call = program_.graph.calls[id.value];
  if (world_ != nullptr)
    world_->position().enter(cat("step ", position_.step, ", call ", call.name));
  if (call.kind == CallKind::kFetch || exchange_.ranks() == 1) return ok_status();
  const bool rewards = call.kind == CallKind::kReward;
  const auto needed = rewards ? scored_rows(id) : rows_.by_rank(id, position_.step);
  std::vector<std::string> fields = call.reads;
  if (rewards) fields.push_back("truncated");
  // Recorded beside the rewards, compared with the trainer's log-probs.
  if (rewards || call.kind == CallKind::kInfer) fields.push_back("sampler_logprobs");
  for (const std::string& name : fields) {
    const Field* field = find_field(program_.graph, name);
    if (field != nullptr && name != "prompt_ids") BRAID_TRY(exchange_.bring(*field, needed));
  }
  return ok_status();
}

Status Session::after_call(CallId id) {
  const Call& call = program_.graph.calls[id.value];
  if (call.kind == CallKind::kFetch) return takes_part(id) ? ok_status() : fetch(call);
  if (call.kind == CallKind::kReward) return share_rewards(call);
  const auto written = rows_.by_rank(id, position_.step);
  for (const Field& field : call.writes) exchange_.note(field.name, written);
  if (call.kind == CallKind::kGenerate) return exchange_.share_lengths();
  return call.kind == CallKind::kCompute ? share_algo_state(id) : ok_status();
}

Status Session::run_call(const Call& call) {
  switch (call.kind) {
    case CallKind::kFetch:
      return fetch(call);
    case CallKind::kInfer:
      return infer(call);
    case CallKind::kReward:
      return reward(call);
    case CallKind::kCompute:
      return compute(call);
    case CallKind::kGenerate:
    case CallKind::kTrainStep:
      break;
  }
  BRAID_CHECK(false, "call " + call.name + " must be a region");
}

// Every rank reads the data set itself.
Status Session::fetch(const Call& call) {
  rows_.forget();
  exchange_.begin();
  BRAID_TRY(fetch_samples(call, data_.data, position_.cursor, config_.rollout, store_));
  position_.cursor += config_.rollout.prompts_per_step;
  return ok_status();
}

Status Session::infer(const Call& call) {
  const CallId id = id_of(call);
  const int dp_rank = rows_.dp_rank(id, rank());
  const auto& parts = rows_.deal(id, position_.step).minibatches[0].micro_batches[dp_rank];
  inference_.begin(*roles_.at(call.role.value).model, inferred_of(call), parts.size());
  Rows mine;
  for (const SampleRows& part : parts) {
    const Rows rows = rows_of(part);
    BRAID_TRY(inference_.forward(store_, rows));
    mine.insert(mine.end(), rows.begin(), rows.end());
  }
  BRAID_TRY(inference_.collect(store_, call.writes.front().name));
  note_mismatch(store_, mine, metrics_);
  return ok_status();
}

Status Session::reward(const Call& call) {
  const Rows rows = scored_rows(id_of(call))[rank()];
  if (asks_rewards(config_, program_.graph)) {
    if (!rows.empty()) {
      BRAID_ASSIGN(scored_, scoring_.score(store_, rows));
    }
  } else {
    scored_ = Scoring::replayed(generation_.replayed(), store_, rows);
  }
  return rows.empty() ? ok_status() : scoring_.record(scored_, store_, rows, position_.step);
}

// What one rank or several found becomes everyone's: rewards, and who is dropped.
Status Session::share_rewards(const Call& call) {
  const std::vector<Rows> asked = scored_rows(id_of(call));
  ScoredSamples scored = std::move(scored_);
  scored_ = {};
  if (exchange_.ranks() > 1) {
    const std::string mine = asked[rank()].empty() ? "" : scored_text(scored, asked[rank()]);
    BRAID_ASSIGN(const auto texts, exchange_.gather_text(mine, "rewards"));
    BRAID_ASSIGN(scored, merge_scored(texts, store_.size()));
  }
  if (rank() == 0) note_rewards(scored, metrics_);
  const std::vector<float> rewards(scored.total.begin(), scored.total.end());
  const Field& field = call.writes.front();
  BRAID_TRY(store_.put_reals(field.name, store_.all_rows(), at::tensor(rewards)));
  exchange_.note(field.name, std::vector<Rows>(exchange_.ranks(), store_.all_rows()));
  store_.retain(scored.kept);
  exchange_.retain(scored.kept);
  rows_.forget();
  if (store_.size() == 0)
    return {Code::kStopped,
            "every sample was dropped by on_error: drop; look at the rewards' errors"};
  return ok_status();
}

Status Session::compute(const Call& call) {
  BRAID_ASSIGN(const ComputeFn function, find_compute(call.function));
  const Rows rows = store_.all_rows();
  BRAID_ASSIGN(const AlgoBatch batch, store_.gather(call.reads, rows));
  BRAID_ASSIGN(ComputeResult result, function(batch, config_.algorithm, position_.algo));
  for (const Field& field : call.writes)
    BRAID_TRY(store_.put_reals(field.name, rows, result.fields.at(field.name)));
  merge(metrics_, result.metrics);
  return ok_status();
}

// An algorithm's function runs on one rank; its state goes on with all.
Status Session::share_algo_state(CallId call) {
  if (exchange_.ranks() == 1) return ok_status();
  const std::string mine = takes_part(call) ? Json(position_.algo).dump() : "";
  BRAID_ASSIGN(const auto texts, exchange_.gather_text(mine, "the algorithm's state"));
  for (const std::string& text : texts)
    if (!text.empty()) position_.algo = Json::parse(text).get<AlgoState>();
  return ok_status();
}

// The ranks that hold the same weights and train on other samples; null: this one alone.
Result<Communicator*> Session::data_group(CallId call) {
  if (program_.calls.empty() || program_.calls[call.value].strategy.dp == 1)
    return static_cast<Communicator*>(nullptr);
  std::vector<int64_t> members;
  for (const DeviceId device : program_.calls[call.value].mesh.devices)
    members.push_back(device.value);
  std::sort(members.begin(), members.end());
  std::string name = "data";
  for (const int64_t member : members) name += cat("-", member);
  return world_->group(name, std::move(members));
}

Status Session::begin_region(const Call& call) {
  const CallId id = id_of(call);
  if (call.kind == CallKind::kGenerate)
    return generation_.begin(*roles_.at(call.role.value).model, store_,
                             rows_.by_rank(id, position_.step)[rank()], position_.step);
  BRAID_ASSIGN(Communicator * group, data_group(id));
  training_.begin(call, rows_.deal(id, position_.step), rows_.dp_rank(id, rank()), group,
                  position_.step);
  return ok_status();
}

Status Session::generate_step(const Call&) { return generation_.round(); }

Status Session::run_schedule(const Call&) {
  const std::vector<Rows> parts = training_.begin_update();
  if (parts.empty()) return ok_status();
  const Schedule schedule = one_f_one_b(1, static_cast<int32_t>(parts.size()));
  for (const ScheduleOp& op : schedule.per_stage[0]) {
    if (op.kind == ScheduleOp::Kind::kForward)
      BRAID_TRY(training_.forward(op.micro_batch, parts[op.micro_batch])
                    .at(cat("micro-batch ", op.micro_batch)));
    else
      training_.backward(op.micro_batch);
  }
  return ok_status();
}

Status Session::reduce(const Call&) { return training_.reduce(); }

Status Session::agree(const Call& call) {
  if (call.kind == CallKind::kGenerate) return ok_status();
  training_.norm();
  return training_.agree();
}

Status Session::optimizer_step(const Call&) { return training_.update(); }

bool Session::region_done(ExitCondition exit) const {
  return exit == ExitCondition::kDrained ? generation_.drained() : training_.done();
}

Status Session::end_region(const Call& call) {
  if (call.kind != CallKind::kGenerate) return ok_status();
  BRAID_TRY(generation_.finish(store_));
  note_lengths(store_, rows_.by_rank(id_of(call), position_.step)[rank()], metrics_);
  return ok_status();
}

Status Session::merge_reports() {
  report_.metrics = metrics_;
  report_.stop_signal = stop_signal();
  report_.peak_bytes = static_cast<double>(peak_memory_bytes());
  rank_seconds_ = {report_.seconds};
  rank_peaks_ = {report_.peak_bytes};
  if (exchange_.ranks() == 1) return ok_status();
  BRAID_ASSIGN(const auto texts,
               exchange_.gather_text(report_text(report_), "reports of the step"));
  RankReport all;
  rank_seconds_.clear();
  rank_peaks_.clear();
  for (const std::string& text : texts) {
    BRAID_ASSIGN(const RankReport part, parse_report(text));
    merge(all.metrics, part.metrics);
    rank_seconds_.push_back(part.seconds);
    rank_peaks_.push_back(part.peak_bytes);
    for (const auto& [call, seconds] : part.seconds)
      all.seconds[call] = std::max(all.seconds[call], seconds);
    all.trained_tokens += part.trained_tokens;
    if (all.stop_signal.empty()) all.stop_signal = part.stop_signal;
  }
  report_ = std::move(all);
  return ok_status();
}

// The metrics of a step whose reports are merged.
std::map<std::string, double> Session::step_row() {
  std::map<std::string, double> row;
  double training = 0;
  for (const Call& call : program_.graph.calls) {
    const auto found = report_.seconds.find(call.name);
    if (found == report_.seconds.end()) continue;
    row["time/" + call.name] = found->second;
    if (call.kind == CallKind::kTrainStep) training += found->second;
  }
  for (const auto& [name, metric] : report_.metrics) row[name] = reported(name, metric);
  const auto tokens = static_cast<double>(row_tokens(store_, store_.all_rows()));
  const double total = report_.seconds.at(kStepSeconds);
  row["time/step"] = total;
  row["data/prompts_seen"] = static_cast<double>(position_.cursor);
  row["data/epoch"] = static_cast<double>(data_.data.epoch(position_.cursor));
  row["data/tokens_seen"] = static_cast<double>(position_.tokens_seen) + tokens;
  row["perf/tokens_per_s_per_device"] = tokens / total / static_cast<double>(exchange_.ranks());
  const auto trained = static_cast<double>(report_.trained_tokens);
  if (trained > 0) row["perf/train_tokens_per_s"] = trained / training;
  if (asks_rewards(config_, program_.graph))
    row["perf/gen_tokens_per_s"] =
        report_.metrics["length/response_mean"].sum / row["time/generate"];
  return row;
}

Result<std::map<std::string, double>> Session::run_step(const InstructionObserver& observer) {
  using Clock = std::chrono::steady_clock;
  metrics_.clear();
  report_ = {};
  const int64_t trained_before = training_.trained_tokens();
  double called = 0;
  const CallTimer timer = [&](const Call& call, double seconds) {
    report_.seconds[call.name] = seconds;
    called += seconds;
  };
  const Clock::time_point begin = Clock::now();
  BRAID_TRY(interpret(program_, rank(), *this, timer, observer));
  const double whole = std::chrono::duration<double>(Clock::now() - begin).count();
  report_.seconds[kStepSeconds] = exchange_.ranks() == 1 ? called : whole;
  report_.trained_tokens = training_.trained_tokens() - trained_before;
  BRAID_TRY(merge_reports());
  std::map<std::string, double> row = step_row();
  position_.tokens_seen += row_tokens(store_, store_.all_rows());
  ++position_.step;
  return row;
}

std::vector<Json> Session::sample_rows(size_t count) const {
  return braid::sample_rows(store_, data_.tokenizer_or_null(), position_.step - 1, count);
}

Status Session::export_models(const std::string& folder) const {
  return export_roles(roles_, config_, folder);
}

Result<CheckpointState> Session::save_state() const {
  return run_state(run_identity(config_, program_, data_.data), position_, roles_);
}

Status Session::load_state(const CheckpointState& state) {
  BRAID_TRY(check_same_run(state.numbers, run_identity(config_, program_, data_.data)));
  return load_run_state(state, config_, position_, roles_);
}

}  // namespace braid
