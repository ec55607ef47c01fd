#include "session/session.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/ceil_div.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "comm/transfer_audit.h"
#include "config/algorithm_check.h"
#include "config/algorithm_traits.h"
#include "config/evaluates.h"
#include "device/tensor_memory.h"
#include "host/machine.h"
#include "host/work_section.h"
#include "identity/fingerprint.h"
#include "inputs/reward_columns.h"
#include "plan/make_problem.h"
#include "program/exchange.h"
#include "samples/listed_counts.h"
#include "samples/step_metrics.h"
#include "session/call_balance.h"
#include "session/check_models.h"
#include "weights/check_tokenizers.h"
#include "weights/memory_report.h"
#include "weights/roles.h"

namespace braid::inline session {
namespace {

Status check_options(const Config& config, const Graph& graph) {
  BRAID_TRY(check_functions(graph));
  if (steps_ahead(graph) > 0 && !config.rollout.replay.empty())
    return invalid_input(
        "rollout.replay: rollouts that are read are those of their step, and the plan makes them "
        "ahead (staleness); remove one of them");
  BRAID_TRY(validate(config.algorithm));
  BRAID_TRY(check_rewards(config.reward));
  BRAID_TRY(validate(config.optim.actor, "optim.actor"));
  BRAID_TRY(validate(config.optim.critic, "optim.critic"));
  return validate(config.optim.reward, "optim.reward");
}

Status check_world(const Program& program, const World* world) {
  const int64_t ranks = world == nullptr ? 1 : world->world_size();
  const auto planned = static_cast<int64_t>(program.ranks.size());
  if (ranks == planned) return ok_status();
  return invalid_input(cat("the plan is for ", planned, " devices, this job has ", ranks,
                           " processes; start one process per device, or plan for ", ranks));
}

// The cores of a machine are shared by its ranks.
Status set_threads(const Config& config, const World* world) {
  if (config.train.threads > 0) {
    BRAID_TRY(check_threads(config.train.threads).at("train.threads"));
    at::set_num_threads(static_cast<int>(config.train.threads));
    return ok_status();
  }
  if (world != nullptr && world->world_size() > 1)
    at::set_num_threads(static_cast<int>(
        threads_per_rank(std::thread::hardware_concurrency(), world->membership().local_size)));
  return ok_status();
}

Status set_memory_limit(const Config& config) {
  const double gib = config.train.memory_limit_gib;
  if (gib > 0 && config.device != "cpu")
    return invalid_input(
        cat("train.memory_limit_gib: limits what tensors in host memory hold, but "
            "device is ",
            config.device, "; remove it"));
  set_tensor_memory_limit(static_cast<int64_t>(gib * kGib));
  return ok_status();
}

// The ranks that ask the list of rewards share its workers.
std::vector<RewardConfig> rewards_of_rank(const Config& config, const Program& program) {
  std::vector<RewardConfig> out = config.reward;
  int64_t ranks = 1;
  for (size_t i = 0; i < program.calls.size() && !program.rewards_together; ++i) {
    if (program.graph.calls[i].kind != CallKind::kReward) continue;
    const CallId beside = asked_beside(program.graph, CallId{static_cast<int32_t>(i)});
    ranks = std::max<int64_t>(ranks, program.calls[beside.value].strategy.dp);
  }
  for (RewardConfig& entry : out) entry.workers = ceil_div(entry.workers, ranks);
  return out;
}

Result<std::unique_ptr<Evaluator>> make_evaluator(const Config& config, const Graph& graph,
                                                  bool reports) {
  if (find_role(graph, RoleId{"actor"}) == nullptr)
    return invalid_input(cat("eval.every_steps, eval.at_start: algorithm ", config.algorithm.name,
                             " trains no policy that could answer; remove them"));
  return Evaluator::create(config, reports);
}

// Of what is not trained: weights, own functions.
Json fingerprints_of(const Config& config, const Roles& roles, const RewardModels& scorers,
                     const Json& own_functions) {
  Json out = frozen_fingerprints(config, roles, scorers);
  out.update(own_functions);
  return out;
}

}  // namespace

struct Session::Loaded {
  Communicator* everyone = nullptr;
  at::Device device = at::kCPU;
  ChangeOps change;
  RunData data;
  std::unique_ptr<RankModels> models;
  std::vector<std::unique_ptr<Reward>> rewards;
  RewardModels reward_models;
  RewardReaders readers;
  std::unique_ptr<Evaluator> evaluator;
  RewardModels eval_models;
  Json own_functions;  // fingerprints
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
                                                 World* world, const ChangeOps& change) {
  const Graph& graph = program.graph;
  BRAID_TRY(check_options(config, graph));
  BRAID_TRY(check_executable(program));
  BRAID_TRY(check_world(program, world));
  BRAID_TRY(set_threads(config, world));
  BRAID_TRY(set_memory_limit(config));
  Loaded loaded;
  loaded.change = change;
  BRAID_ASSIGN(const ModelOptions options, model_options(config));
  loaded.device = options.device;
  if (world != nullptr && world->world_size() > 1) {
    BRAID_ASSIGN(loaded.everyone, world->everyone());
  }
  const double check_s = config.data.check_s > 0 ? config.data.check_s : kCheckAll;
  const bool leads = world == nullptr || world->global_rank() == 0;
  std::vector<std::string> notes;
  BRAID_TRY(check_models(config, graph, std::nullopt, &notes));  // before what is read with them
  BRAID_ASSIGN(loaded.data, load_run_data(config, config.data.train, data_need(graph), check_s));
  if (leads) log_info(cat("data.train: rows are read as ", loaded.data.data.description()));
  notes.clear();
  BRAID_TRY(check_models(config, graph, loaded.data.tokenizer, &notes));
  BRAID_TRY(check_shared_tokenizers(config, graph, loaded.data.tokenizer, &notes));
  for (const std::string& note : notes)
    if (leads) log_warning(note);
  if (const std::string note = uncorrected_text(config, graph); leads && !note.empty())
    log_warning(note);
  const bool asks = asks_rewards(config, graph);
  const bool optional = algorithm_traits(config.algorithm.name).rewards_optional;
  if (asks && config.reward.empty() && !optional)
    return invalid_input(
        "reward: the list is empty; an algorithm that generates needs at least one reward");
  if (asks) {
    BRAID_ASSIGN(loaded.rewards, make_rewards(rewards_of_rank(config, program)));
    BRAID_TRY(check_columns(loaded.rewards, config.reward, loaded.data.data));
  }
  if (needs_rewards(config, graph)) {
    BRAID_ASSIGN(loaded.readers, load_reward_readers(config, loaded.data.tokenizer));
    BRAID_TRY(check_reward_texts(loaded.readers, loaded.data.data));
  }
  BRAID_ASSIGN(loaded.own_functions, own_function_fingerprints(config));
  BRAID_ASSIGN(loaded.models, RankModels::load(config, program, world));
  const bool listed = find_role(graph, RoleId{"reward"}) == nullptr;
  if (asks && listed) {
    BRAID_ASSIGN(loaded.reward_models, load_reward_models(config, loaded.models->roles()));
  }
  if (evaluates(config)) {
    BRAID_ASSIGN(loaded.evaluator, make_evaluator(config, graph, leads));
  }
  if (loaded.evaluator && listed && !asks && leads) {
    BRAID_ASSIGN(loaded.eval_models, load_reward_models(config, loaded.models->roles()));
  }
  return std::unique_ptr<Session>(new Session(config, program, world, std::move(loaded)));
}

Session::Session(const Config& config, const Program& program, World* world, Loaded loaded)
    : config_(config),
      program_(program),
      data_(std::move(loaded.data)),
      store_(program.graph),
      rows_(config_, program_, store_),
      exchange_(loaded.everyone, store_),
      reader_(program_.graph, data_.data, config_.rollout, exchange_.rank(), exchange_.ranks()),
      models_(std::move(loaded.models)),
      work_(program_, *models_, rows_, loaded.everyone, needs_, std::move(loaded.change)),
      scoring_(config_, data_.tokenizer_or_null(), std::move(loaded.rewards),
               std::move(loaded.reward_models), std::move(loaded.readers)),
      talk_(world, exchange_),
      step_(context()),
      account_(program_, rows_, exchange_),
      ahead_(braid::steps_ahead(program_.graph) == 0
                 ? nullptr
                 : std::make_unique<StepsAhead>(config_, program_, loaded.everyone)),
      carried_(carried_steps(program_.graph) == 0
                   ? nullptr
                   : std::make_unique<CarriedSamples>(step_, generation_)),
      predicts_(predicts(config_, program_)),
      state_(step_, data_, ahead_.get(), carried_.get(), predicts_ ? &lengths_ : nullptr,
             fingerprints_of(config_, models_->roles(), scoring_.models(), loaded.own_functions)),
      generation_(config_.rollout, config_.train.seed, data_.tokenizer_or_null()),
      hand_over_(step_, generation_),
      infers_(step_),
      rewards_(step_, infers_, account_, generation_, scoring_),
      selects_(step_),
      trains_(step_),
      evaluation_(step_, infers_, scoring_, needs_, std::move(loaded.evaluator),
                  std::move(loaded.eval_models)),
      report_(step_, loaded.device),
      timeline_(program_, exchange_.rank()),
      device_(loaded.device),
      saves_(step_) {
  models_->rest();
}

StepContext Session::context() {
  return {config_, program_,  exchange_, store_, rows_,  *models_,
          work_,   position_, record_,   talk_,  reader_};
}

void Session::note_instruction(size_t index) {
  noted_ = index;
  const Instruction& instruction = program_.ranks[rank()].instructions[index];
  talk_.note(cat("step ", position_.step + 1, ", call ", step_.call(instruction.call).name),
             cat("instruction ", index, " (", op_kind_name(instruction.kind), ")"));
  timeline_.enter(index);
}

Status Session::moving_weights(const std::function<Status()>& move) {
  const Instruction& instruction = program_.ranks[rank()].instructions[noted_];
  talk_.note(cat("step ", position_.step + 1, ", call ", step_.call(instruction.call).name),
             "moving weights");
  BRAID_TRY(move());
  note_instruction(noted_);
  return ok_status();
}

Status Session::execute(const Instruction& instruction) {
  if (!timeline_.on()) return act(instruction);
  const PeakMeter meter(device_);
  BRAID_TRY(act(instruction));
  const OpKind kind = instruction.kind;
  const bool passes = kind == OpKind::kPasses || kind == OpKind::kRound || kind == OpKind::kCall;
  timeline_.hold(passes ? "activations" : "other",
                 meter.most_bytes() - std::max<int64_t>(0, meter.kept_bytes()));
  if (kind == OpKind::kRound) timeline_.hold("KV cache", generation_.cache_bytes());
  return ok_status();
}

void Session::note_memory() {
  if (!timeline_.on()) return;
  const MemoryUseOfRank use = memory_use(*models_, 0);
  for (const auto& [owner, bytes] : use.weights) timeline_.hold(owner, bytes);
  timeline_.hold("gradients", use.gradients);
  timeline_.hold("optimizer", use.optimizer);
  timeline_.hold("samples", store_.bytes());
}

bool Session::has_work(const Instruction& instruction) const {
  const OpKind kind = instruction.kind;
  // Weights come and go in every turn.
  if (kind == OpKind::kReallocate || kind == OpKind::kRelease || moves_state(kind)) return true;
  if (!moves_fields(kind)) return has_samples(turn_, step_.call(instruction.call));
  const Exchange& fields = program_.exchanges[instruction.detail];
  return has_samples(turn_, step_.call(fields.samples_of()));
}

Status Session::act(const Instruction& instruction) {
  if (!has_work(instruction)) return ok_status();
  const Call& call = program_.graph.calls[instruction.call.value];
  switch (instruction.kind) {
    case OpKind::kCall:
      return run_call(call, instruction.part);
    case OpKind::kRegionBegin:
      return begin_region(call, instruction.part);
    case OpKind::kRegionEnd:
      return end_region(call, instruction.part);
    case OpKind::kTally:
      return hand_over_.tally(instruction.call);
    case OpKind::kHandOver:
      return hand_over_.hand_over(instruction.call);
    case OpKind::kRound:
      return generating(call, [&] { return generation_.round(); });
    case OpKind::kPasses:
      return instruction.detail < 0 ? trains_.run_passes(call)
                                    : trains_.run_fused(program_.fused[instruction.detail]);
    case OpKind::kReduce:
      return trains_.reduce(instruction.call);
    case OpKind::kAgree:
      return call.kind == CallKind::kGenerate
                 ? generating(call, [&] { return generation_.settle(); })
                 : trains_.agree(call);
    case OpKind::kUpdate:
      return trains_.update(call);
    case OpKind::kAllGather:
      return trains_.gather(instruction.call);
    case OpKind::kRepeat:
      selects_.give();
      return ok_status();
    case OpKind::kShare:
      return share(instruction.detail);
    case OpKind::kExchange:
      return account_.begin_exchange(instruction.detail, position_.step);
    case OpKind::kReallocate:
      if (!due(call)) return ok_status();
      return moving_weights([&] { return models_->reallocate(instruction.detail); });
    case OpKind::kLoad:
      return begin_load(instruction);
    case OpKind::kOffload:
      return offload(instruction.detail);
    case OpKind::kRelease:
      models_->release(instruction.detail);
      return ok_status();
    default:
      break;
  }
  BRAID_CHECK(false, cat(op_kind_name(instruction.kind), " is no instruction of a list"));
}

Status Session::begin_ahead(const Instruction& instruction) {
  if (instruction.kind == OpKind::kLoad) return begin_load(instruction);
  if (!due(program_.graph.calls[instruction.call.value])) return ok_status();
  return models_->begin_reallocation(instruction.detail);
}

Status Session::wait_for(const Instruction& instruction) {
  timeline_.enter(noted_, true);
  if (instruction.kind == OpKind::kExchange) {
    BRAID_TRY(exchange_.arrive(instruction.detail));
  } else if (due(program_.graph.calls[instruction.call.value])) {
    BRAID_TRY(moving_weights([&] { return models_->reallocated(instruction.detail); }));
  }
  timeline_.enter(noted_);
  return ok_status();
}

// What a call's models held beside their weights goes back to the machine.
void Session::leave_call(const Call& call) {
  if (models_->saves_memory() && uses_model(call)) release_free_heap();
}

Status Session::share(int32_t entry) {
  const Exchange& shared = program_.exchanges[entry];
  const Call& call = step_.call(shared.producer);
  if (call.carried_steps > 0) BRAID_TRY(carried_->settle());
  FieldAccount& account = account_of(call);
  account.note_shared(entry, position_.step);
  if (call.kind == CallKind::kFetch) return share_fetched(call);
  if (call.kind == CallKind::kReward) return rewards_.share(shared);
  if (call.kind == CallKind::kCompute) return share_algo_state(shared.producer);
  BRAID_TRY(account.share(shared, position_.step).status());
  note_predictions(call);
  note_balance(step_, call, rows_of(call), store_of(call));
  return ok_status();
}

// What was predicted is known on all ranks, and now what became of it too: the first one says it.
void Session::note_predictions(const Call& call) {
  const bool drawn =
      call.kind == CallKind::kGenerate && store_of(call).responses_of(call) == "response_ids";
  if (rank() != 0 || !drawn) return;
  if (const auto found = length_correlation(store_, rows_.predicted()))
    record_.metrics["rollout/length_correlation"].add(*found);
}

Status Session::run_call(const Call& call, SamplePart part) {
  BRAID_TRY(read_for(call, part));
  BRAID_TRY(execute_call(call, part));
  if (part == SamplePart::kAll) note_balance(step_, call, rows_of(call), store_of(call));
  leave_call(call);
  return ok_status();
}

Status Session::execute_call(const Call& call, SamplePart part) {
  switch (call.kind) {
    case CallKind::kFetch:
      return fetch(call);
    case CallKind::kInfer:
      return rewards_.infer(call, part);
    case CallKind::kReward:
      return rewards_.reward(call);
    case CallKind::kCompute:
      return talk_.until_told(guarded([&] { return compute(call); }));
    case CallKind::kFollow:
      return follow(call);
    case CallKind::kSelect:
      return selects_.select();
    case CallKind::kGenerate:
    case CallKind::kTrainStep:
      break;
  }
  BRAID_CHECK(false, "call " + call.name + " must be a region");
}

Result<std::string> Session::read_share(const Call& call) {
  const WorkSection section;
  BRAID_TRY(state_.follow_data_check());
  rows_of(call).forget();
  account_of(call).begin();
  auto share = reader_.read_share(position_.cursor, prompts_to_fetch());
  const Status read = share.status().at("data.train");
  const bool unchecked = data_.data.checked() < data_.data.size();
  if (!read.ok() && unchecked)
    return Status{read.code(), cat(read.message(),
                                   "; mend it, and let the data differ from the checkpoint's with "
                                   "checkpoint.allow=[data.train]")};
  BRAID_TRY(read);
  return share;
}

int64_t Session::prompts_to_fetch() const {
  return carried_ ? carried_->lacking() : config_.rollout.prompts_per_step;
}

// Each rank reads its share of the data; who cannot says so in the share.
Status Session::fetch(const Call& call) {
  auto share = read_share(call);
  fetched_ = share.ok() ? std::move(*share) : "";
  return talk_.until_told(share.status());
}

// All ranks tell each other what they have read; from here on there are the step's samples.
Status Session::share_fetched(const Call& call) {
  std::vector<std::string> told;
  const auto listed = [&] {
    const RolloutConfig& of = config_.rollout;
    return listed_of_fetch(call, prompts_to_fetch(), of.samples_per_prompt, ranks());
  };
  const auto tell = [&]() -> Status {
    BRAID_ASSIGN(told, talk_.gather_or_fail(fetched_, "the share of a fetch"));
    return ok_status();
  };
  BRAID_TRY(audited(cat("the share of ", call.name), listed, tell));
  const WorkSection section;
  BRAID_TRY(reader_.begin(position_.cursor, told, store_of(call)).at("data.train"));
  position_.cursor += prompts_to_fetch();
  if (carried_) carried_->join();
  if (predicts_) rows_of(call).predict(predicted_lengths(store_of(call), data_.data, lengths_));
  return ok_status();
}

// What the data say of the samples that a call works on here.
Status Session::read_for(const Call& call, SamplePart part) {
  if (ranks() == 1 || !reader_.needed_by(call)) return ok_status();
  const WorkSection section;
  const auto rows = rows_of(call).read_by_rank(step_.id_of(call), position_.step, part);
  return reader_.read(braid::rows_of(rows[rank()]), store_of(call)).at("data.train");
}

Status Session::follow(const Call& call) {
  if (!due(call)) return ok_status();
  const WorkSection section;
  followed_ = true;
  return models_->follow(step_.id_of(call), config_.reference.ema);
}

// The first rank of a call has the metrics, of all samples.
Status Session::compute(const Call& call) {
  const WorkSection section;
  BRAID_ASSIGN(const ComputeFn function, find_compute(call.function));
  const CallId id = step_.id_of(call);
  const bool leads = step_.leads(id);
  const Rows rows = leads ? store_.all_rows() : rows_.computed_by(id, position_.step, rank());
  if (rows.empty() && !leads) return ok_status();
  BRAID_ASSIGN(const AlgoBatch batch, store_.gather(call.reads, rows));
  BRAID_ASSIGN(ComputeResult result, function(batch, config_.algorithm, position_.algo));
  for (const Field& field : call.writes)
    BRAID_TRY(store_.put_reals(field.name, rows, result.fields.at(field.name)));
  if (leads) merge(record_.metrics, result.metrics);
  return ok_status();
}

// A function that keeps state runs on one rank; its state goes on with all.
Status Session::share_algo_state(CallId call) {
  if (exchange_.ranks() == 1) return ok_status();
  const std::string mine = step_.leads(call) ? Json(position_.algo).dump() : "";
  BRAID_ASSIGN(const auto texts, talk_.gather_or_fail(mine, "the algorithm's state"));
  for (const std::string& text : texts)
    if (!text.empty()) position_.algo = Json::parse(text).get<AlgoState>();
  return ok_status();
}

Status Session::begin_region(const Call& call, SamplePart part) {
  if (part == SamplePart::kLate) return ok_status();  // goes on with what was begun
  const CallId id = step_.id_of(call);
  BRAID_TRY(read_for(call, part));
  if (call.kind == CallKind::kGenerate) {
    BRAID_ASSIGN(std::unique_ptr<EngineRanks> ranks, work_.generation(id));
    if (carried_) carried_->begin_generation();
    return generation_.begin(call, models_->model(id), std::move(ranks), store_of(call),
                             rows_of(call).mine(id, position_.step, rank()), position_.step,
                             rows_of(call).predicted());
  }
  return trains_.begin(call);
}

Status Session::generating(const Call& call, const std::function<Status()>& act) {
  const WorkSection section;
  const int64_t before = generation_.cuts();
  BRAID_TRY(act());
  if (generation_.cuts() > before) ++record_.repeats[call.name];
  return ok_status();
}

Status Session::begin_load(const Instruction& load) {
  const WorkSection section;
  models_->begin_load(load.detail, load.layers);
  return ok_status();
}

Status Session::offload(int32_t state) {
  const WorkSection section;
  models_->offload(state);
  return ok_status();
}

bool Session::region_done(const Instruction& end) const {
  if (!has_work(end)) return true;
  if (end.exit == ExitCondition::kFilled) return selects_.filled();
  if (end.exit == ExitCondition::kEnoughGroups) return carried_->enough();
  if (end.exit == ExitCondition::kFewLeft) return hand_over_.few_left();
  return end.exit == ExitCondition::kDrained ? generation_.drained() : trains_.done(end.call);
}

Status Session::end_region(const Call& call, SamplePart part) {
  if (part == SamplePart::kEarly) return ok_status();
  if (call.kind == CallKind::kGenerate) {
    BRAID_TRY(end_generation(call));
  } else {
    models_->note_training(call.role);
    note_balance(step_, call, rows_of(call), store_of(call));
  }
  leave_call(call);
  return ok_status();
}

Status Session::end_generation(const Call& call) {
  SampleStore& store = store_of(call);
  if (carried_) BRAID_TRY(carried_->end_generation());
  BRAID_TRY(generation_.finish(store));
  if (works_ahead(call))
    store.set_counts(kWeightsVersion, std::vector<int64_t>(store.size(), position_.step));
  const CallId id = step_.id_of(call);
  record_.ledger.expect(call.name,
                        carried_ ? carried_->samples_taken() : static_cast<int64_t>(store.size()));
  if (!rows_.leads_replica(id, rank())) return ok_status();
  const Rows mine =
      carried_ ? carried_->own_taken() : rows_of(call).mine(id, position_.step, rank());
  const std::string responses = store.responses_of(call);
  record_.ledger.computed(call.name, rows_with_tokens(store, responses, mine));
  if (responses == "response_ids")
    note_lengths(store, mine, works_ahead(call) ? ahead_->metrics() : record_.metrics);
  return ok_status();
}

Result<std::vector<Json>> Session::sample_rows(size_t count) {
  Rows first = store_.all_rows();
  first.resize(std::min(count, first.size()));
  BRAID_TRY(reader_.read(first, store_).at("data.train"));
  return braid::sample_rows(store_, data_.tokenizer_or_null(), config_.rollout.stop,
                            position_.step - 1, count);
}

}  // namespace braid::inline session
