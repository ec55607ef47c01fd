#include "session/session.h"

#include <ATen/Parallel.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "algo/batch.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "config/algorithm_check.h"
#include "config/algorithm_traits.h"
#include "device/tensor_memory.h"
#include "host/machine.h"
#include "host/work_section.h"
#include "identity/fingerprint.h"
#include "identity/run_identity.h"
#include "inputs/reward_columns.h"
#include "plan/make_problem.h"
#include "samples/step_metrics.h"
#include "session/check_models.h"
#include "weights/check_tokenizers.h"
#include "weights/roles.h"

namespace braid::inline session {
namespace {

Status check_options(const Config& config, const Graph& graph) {
  BRAID_TRY(check_functions(graph));
  BRAID_TRY(validate(config.algorithm));
  BRAID_TRY(check_rewards(config.reward));
  BRAID_TRY(validate(config.optim.actor, "optim.actor"));
  BRAID_TRY(validate(config.optim.critic, "optim.critic"));
  return validate(config.optim.reward, "optim.reward");
}

const Field* find_field(const Graph& graph, const std::string& name) {
  for (const Call& call : graph.calls)
    for (const Field& field : call.writes)
      if (field.name == name) return &field;
  return nullptr;
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

Result<std::unique_ptr<Evaluator>> make_evaluator(const Config& config, const Graph& graph,
                                                  bool reports) {
  if (find_role(graph, RoleId{"actor"}) == nullptr)
    return invalid_input(cat("eval.every_steps, eval.at_start: algorithm ", config.algorithm.name,
                             " trains no policy that could answer; remove them"));
  return Evaluator::create(config, reports);
}

}  // namespace

struct Session::Loaded {
  Communicator* everyone = nullptr;
  ChangeOps change;
  RunData data;
  std::unique_ptr<RankModels> models;
  std::vector<std::unique_ptr<Reward>> rewards;
  RewardModels reward_models;
  RewardReaders readers;
  std::unique_ptr<Evaluator> evaluator;
  RewardModels eval_models;
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
  const bool asks = asks_rewards(config, graph);
  const bool optional = algorithm_traits(config.algorithm.name).rewards_optional;
  if (asks && config.reward.empty() && !optional)
    return invalid_input(
        "reward: the list is empty; an algorithm that generates needs at least one reward");
  if (asks) {
    BRAID_ASSIGN(loaded.rewards, make_rewards(config.reward));
    BRAID_TRY(check_columns(loaded.rewards, config.reward, loaded.data.data));
  }
  if (needs_rewards(config, graph)) {
    BRAID_ASSIGN(loaded.readers, load_reward_readers(config, loaded.data.tokenizer));
    BRAID_TRY(check_reward_texts(loaded.readers, loaded.data.data));
  }
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
      world_(world),
      data_(std::move(loaded.data)),
      store_(program.graph),
      rows_(config_, program_, store_),
      exchange_(loaded.everyone, store_),
      models_(std::move(loaded.models)),
      work_(program_, *models_, rows_, loaded.everyone, needs_, std::move(loaded.change)),
      generation_(config_.rollout, config_.train.seed, data_.tokenizer_or_null()),
      inference_(config_.rollout.temperature, shares_prompts(config_, program_.graph)),
      scoring_(config_, data_.tokenizer_or_null(), std::move(loaded.rewards),
               std::move(loaded.reward_models), std::move(loaded.readers)),
      evaluator_(std::move(loaded.evaluator)),
      eval_models_(std::move(loaded.eval_models)),
      frozen_(frozen_fingerprints(config_, models_->roles(), scoring_.models())) {
  models_->rest();
  const int64_t left = data_.data.size() - data_.data.checked();
  if (left == 0 || rank() != 0) return;
  data_check_ = std::make_unique<DataCheck>(data_.data);
  log_info(cat("data.train: ", data_.data.checked(), " rows are checked; the other ", left,
               " are checked while training begins (data.check_s)"));
}

void Session::note_call(const Call& call, const std::string& instruction) const {
  if (world_ == nullptr) return;
  world_->position().enter(cat("step ", position_.step + 1, ", call ", call.name), instruction);
}

void Session::note_instruction(size_t index) {
  noted_ = index;
  const Instruction& instruction = program_.ranks[rank()].instructions[index];
  note_call(program_.graph.calls[instruction.call.value],
            cat("instruction ", index, " (", op_kind_name(instruction.kind), ")"));
}

Status Session::moving_weights(const std::function<Status()>& move) {
  const Instruction& instruction = program_.ranks[rank()].instructions[noted_];
  note_call(program_.graph.calls[instruction.call.value], "moving weights");
  BRAID_TRY(move());
  note_instruction(noted_);
  return ok_status();
}

Status Session::execute(const Instruction& instruction) {
  const Call& call = program_.graph.calls[instruction.call.value];
  switch (instruction.kind) {
    case OpKind::kCall:
      return run_call(call);
    case OpKind::kRegionBegin:
      return begin_region(call);
    case OpKind::kRegionEnd:
      return end_region(call);
    case OpKind::kRound:
      return generating(call, [&] { return generation_.round(); });
    case OpKind::kPasses:
      return instruction.detail < 0 ? run_passes(call)
                                    : run_woven(program_.fused[instruction.detail]);
    case OpKind::kReduce:
      return open_training(instruction.call).reduce();
    case OpKind::kAgree:
      return agree(call);
    case OpKind::kUpdate:
      return update(call);
    case OpKind::kAllGather:
      return open_training(instruction.call).gather();
    case OpKind::kShare:
      return share(instruction.detail);
    case OpKind::kExchange:
      return begin_exchange(instruction.detail);
    case OpKind::kReallocate:
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
  return instruction.kind == OpKind::kLoad ? begin_load(instruction)
                                           : models_->begin_reallocation(instruction.detail);
}

Status Session::wait_for(const Instruction& instruction) {
  if (instruction.kind == OpKind::kExchange) return exchange_.arrive(instruction.detail);
  return moving_weights([&] { return models_->reallocated(instruction.detail); });
}

// What a call's models held beside their weights goes back to the machine.
void Session::leave_call(const Call& call) {
  if (models_->saves_memory() && uses_model(call)) release_free_heap();
}

void Session::note_written(CallId id) {
  const Call& call = program_.graph.calls[id.value];
  if (call.kind == CallKind::kFetch || !written_.insert(id).second) return;
  const std::vector<SampleRows> rows = rows_.written_by_rank(id, position_.step);
  for (const Field& field : call.writes) exchange_.holdings().note(field.name, rows, store_.size());
}

void Session::account(int32_t entry) {
  for (; accounted_ < entry; ++accounted_) {
    const Exchange& before = program_.exchanges[accounted_];
    BRAID_CHECK(!before.shared(), "all ranks take part in every share");
    note_written(before.producer);
    const std::vector<SampleRows> needed = rows_.read_by_rank(before.consumer, position_.step);
    for (const std::string& name : before.fields)
      exchange_.moves(*find_field(program_.graph, name), needed, before.members);
  }
}

Status Session::begin_exchange(int32_t entry) {
  account(entry);
  const Exchange& exchange = program_.exchanges[entry];
  note_written(exchange.producer);
  const std::vector<SampleRows> needed = rows_.read_by_rank(exchange.consumer, position_.step);
  for (const std::string& name : exchange.fields) {
    const Field& field = *find_field(program_.graph, name);
    exchange_.start(entry, field, exchange_.moves(field, needed, exchange.members));
  }
  accounted_ = entry + 1;
  return ok_status();
}

Status Session::share(int32_t entry) {
  const Exchange& shared = program_.exchanges[entry];
  const Call& call = program_.graph.calls[shared.producer.value];
  if (exchange_.ranks() > 1) account(entry);
  accounted_ = entry + 1;
  if (call.kind == CallKind::kReward) return share_rewards(call);
  if (call.kind == CallKind::kCompute) return share_algo_state(shared.producer);
  if (exchange_.ranks() > 1) note_written(shared.producer);
  for (const std::string& name : shared.fields) {
    const Field& field = *find_field(program_.graph, name);
    BRAID_TRY(field.type == FieldType::kCount ? exchange_.share_counts(field)
                                              : exchange_.share(field));
  }
  return ok_status();
}

Status Session::run_call(const Call& call) {
  BRAID_TRY(execute_call(call));
  leave_call(call);
  return ok_status();
}

Status Session::execute_call(const Call& call) {
  switch (call.kind) {
    case CallKind::kFetch:
      BRAID_TRY(until_told(fetch(call)));
      return gather_or_fail("", "the end of fetching").status();
    case CallKind::kInfer:
      return infer(call);
    case CallKind::kReward:
      return reward(call);
    case CallKind::kCompute:
      return until_told(guarded([&] { return compute(call); }));
    case CallKind::kGenerate:
    case CallKind::kTrainStep:
      break;
  }
  BRAID_CHECK(false, "call " + call.name + " must be a region");
}

Status Session::follow_data_check() {
  if (!data_check_) return ok_status();
  const bool done = data_check_->done();  // asked first: what is found then is all
  note_bad_rows(config_, data_.data, position_, *data_check_);
  if (!done || saved_data_sha256_.empty()) return ok_status();
  const std::string saved = std::exchange(saved_data_sha256_, "");
  const std::string own = data_check_->sha256();
  return own.empty() || own == saved ? ok_status() : changed_data();
}

// Every rank reads the data set itself.
Status Session::fetch(const Call& call) {
  const WorkSection section;
  BRAID_TRY(follow_data_check());
  rows_.forget();
  exchange_.begin();
  accounted_ = 0;
  written_.clear();
  const Status fetched =
      fetch_samples(call, data_.data, position_.cursor, config_.rollout, store_).at("data.train");
  if (!fetched.ok() && data_check_)
    return {fetched.code(), cat(fetched.message(),
                                "; mend it, and let the data differ from the checkpoint's with "
                                "checkpoint.allow=[data.train]")};
  BRAID_TRY(fetched);
  position_.cursor += config_.rollout.prompts_per_step;
  return ok_status();
}

Result<InferWork> Session::reserved_infer_work(const InferOf& what) {
  const CallId id = id_of(what.call);
  BRAID_ASSIGN(InferWork work, what.work.inference(id, what.rows.deal(id, what.step)));
  while (true) {
    BRAID_ASSIGN(const bool fits, Inference::reserve(work));
    if (fits || !cut_smaller(what.call, what.rows, 0, kDeclared)) return work;
    BRAID_ASSIGN(work, what.work.inference(id, what.rows.deal(id, what.step)));
  }
}

// What a model gives the samples of this rank, in smaller micro-batches where memory runs out.
Result<InferredRows> Session::inferred(const InferOf& what) {
  BRAID_ASSIGN(InferWork work, reserved_infer_work(what));
  BRAID_ASSIGN(InferredRows done, inference_.run(std::move(work), what.store));
  while (done.ran_out) {
    if (!cut_smaller(what.call, what.rows, 0, done.why)) return too_little_memory(done.why);
    BRAID_ASSIGN(work, reserved_infer_work(what));
    BRAID_ASSIGN(done, inference_.run(std::move(work), what.store));
  }
  return done;
}

Result<InferredRows> Session::inferred_in_step(const Call& call, const SampleStore& store) {
  BRAID_ASSIGN(InferredRows done, inferred({call, store, rows_, work_, position_.step}));
  ledger_.expect(call.name, static_cast<int64_t>(store_.size()));
  if (rows_.at(id_of(call), rank()).tp_rank == 0)
    ledger_.computed(call.name, static_cast<int64_t>(done.rows.size()));
  return done;
}

Result<InferredRows> Session::scored_by_model(const Call& call) {
  if (!scoring_.reader_of(call.role.value)) return inferred_in_step(call, store_);
  const Rows own = rows_.mine(id_of(call), position_.step, rank());
  BRAID_ASSIGN(const SampleStore read, scoring_.as_read_by(call, program_.graph, store_, own));
  return inferred_in_step(call, read);
}

Status Session::infer(const Call& call) {
  // Replayed rollouts bring what reward models would say.
  if (is_reward_role(call.role.value) && !asks_rewards(config_, program_.graph)) return ok_status();
  BRAID_ASSIGN(const InferredRows done, scored_by_model(call));
  const std::string& field = call.writes.front().name;
  if (done.values.defined()) BRAID_TRY(store_.put_reals(field, done.rows, done.values));
  const bool own = field == "old_logprobs";  // not the reference's
  const bool reports = rows_.at(id_of(call), rank()).tp_rank == 0;
  if (reports && own) note_mismatch(store_, done.rows, metrics_);
  return ok_status();
}

// Whether the list of rewards is asked when all ranks of the call have said what its model gave.
bool Session::asks_beside_model(const Call& call) const {
  return exchange_.ranks() > 1 && uses_model(call) && asks_rewards(config_, program_.graph);
}

// Replayed rewards are where the rollouts were read, which need not be a rank of this call.
Status Session::reward(const Call& call) {
  if (!asks_rewards(config_, program_.graph)) return ok_status();
  const CallId id = id_of(call);
  std::map<size_t, double> scores;
  if (uses_model(call)) {
    BRAID_ASSIGN(const InferredRows inferred, scored_by_model(call));
    if (rows_.leads_replica(id, rank())) scores = by_row(inferred);
  }
  if (!asks_beside_model(call))
    return until_told(score(call, rows_.scored_by_rank(id, position_.step)[rank()], scores));
  found_[id].of_model = std::move(scores);
  return ok_status();
}

// All scores of the samples, on every rank.
Status Session::share_values(std::map<size_t, double>* by_row) {
  if (exchange_.ranks() == 1) return ok_status();
  BRAID_ASSIGN(const auto texts, exchange_.gather_text(values_text(*by_row), "scores"));
  for (const std::string& text : texts) BRAID_TRY(add_values(text, by_row));
  return ok_status();
}

// What the reward models of the graph gave these rows: `by_row` is the call's own one, others have
// written fields.
Result<ModelScores> Session::model_scores(const Call& call, const Rows& rows,
                                          const std::map<size_t, double>& by_row) const {
  ModelScores out;
  if (!by_row.empty()) {
    std::vector<double>& own = out[*reward_model_index(config_)];
    for (const size_t row : rows) own.push_back(by_row.at(row));
  }
  for (const Call& before : program_.graph.calls) {
    if (before.kind != CallKind::kInfer || !is_reward_role(before.role.value)) continue;
    const std::string& field = before.writes.front().name;
    if (std::count(call.reads.begin(), call.reads.end(), field) == 0) continue;
    BRAID_ASSIGN(const at::Tensor scores, store_.reals(field, rows));
    out[*reward_model_index(config_, before.role.value)] = to_doubles(scores);
  }
  return out;
}

Status Session::score(const Call& call, const Rows& rows, const std::map<size_t, double>& scores) {
  FoundScores& found = found_[id_of(call)];
  found.rows = rows;
  if (rows.empty()) return ok_status();
  const WorkSection section;
  if (asks_rewards(config_, program_.graph)) {
    BRAID_ASSIGN(const ModelScores of_models, model_scores(call, rows, scores));
    BRAID_ASSIGN(found.scored, scoring_.score(call, store_, rows, position_.step, of_models));
  } else {
    found.scored = Scoring::replayed(generation_.replayed(store_.responses_of(call)), store_, rows);
  }
  return scoring_.record(call, found.scored, store_, rows, position_.step);
}

// What one rank or several found becomes everyone's: rewards, and who is dropped.
Status Session::share_rewards(const Call& call) {
  const CallId id = id_of(call);
  const std::vector<Rows> asked = rows_.scored_by_rank(id, position_.step);
  std::map<size_t, double> scores = std::move(found_[id].of_model);
  const bool beside_model = asks_beside_model(call);
  if (beside_model) BRAID_TRY(share_values(&scores));
  const auto begin = std::chrono::steady_clock::now();
  if (beside_model || !asks_rewards(config_, program_.graph))
    BRAID_TRY(until_told(score(call, asked[rank()], scores)));
  if (beside_model && !asked[rank()].empty())
    seconds_[call.name] +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const FoundScores found = std::exchange(found_[id], {});
  found_.erase(id);
  ScoredSamples scored = found.scored;
  if (exchange_.ranks() > 1) {
    const bool has = untold_.ok() && !found.rows.empty();
    const std::string mine = has ? scored_text(scored, found.rows) : "";
    BRAID_ASSIGN(const auto texts, gather_or_fail(mine, "rewards"));
    BRAID_ASSIGN(scored, merge_scored(texts, store_.size()));
  }
  const std::vector<float> rewards(scored.total.begin(), scored.total.end());
  const Field& field = call.writes.front();
  // Others are of responses that are not learnt from.
  if (rank() == 0 && field.name == "rewards") note_rewards(scored, metrics_);
  BRAID_TRY(store_.put_reals(field.name, store_.all_rows(), at::tensor(rewards)));
  if (exchange_.ranks() > 1) {
    // Before rows get other numbers: what calls before have made of them.
    const int32_t end = shared_before(program_.graph)[id.value];
    for (int32_t before = 0; before < end; ++before) note_written(CallId{before});
    exchange_.note_everywhere(field.name);
    exchange_.holdings().retain(scored.kept);
  }
  store_.retain(scored.kept);
  for (auto& [other, pending] : found_) retain(scored.kept, &pending);
  rows_.forget();
  failed_alike_ = store_.size() == 0;
  if (store_.size() == 0)
    return {Code::kStopped,
            "reward: no sample of the step can be used: rewards failed (on_error: drop) or do not "
            "apply (None); the warnings above say why"};
  return ok_status();
}

Status Session::compute(const Call& call) {
  const WorkSection section;
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
  BRAID_ASSIGN(const auto texts, gather_or_fail(mine, "the algorithm's state"));
  for (const std::string& text : texts)
    if (!text.empty()) position_.algo = Json::parse(text).get<AlgoState>();
  return ok_status();
}

Result<TrainWork> Session::train_work(const Call& call) {
  const CallId id = id_of(call);
  return work_.training(id, rows_.deal(id, position_.step));
}

Status Session::begin_region(const Call& call) {
  const CallId id = id_of(call);
  if (call.kind == CallKind::kGenerate) {
    BRAID_ASSIGN(std::unique_ptr<EngineRanks> ranks, work_.generation(id));
    return generation_.begin(call, models_->model(id), std::move(ranks), store_,
                             rows_.mine(id, position_.step, rank()), position_.step);
  }
  BRAID_ASSIGN(TrainWork work, train_work(call));
  open_training(id).begin(call, std::move(work), position_.step);
  return ok_status();
}

Status Session::generating(const Call& call, const std::function<Status()>& act) {
  const WorkSection section;
  const int64_t before = generation_.cuts();
  BRAID_TRY(act());
  if (generation_.cuts() > before) ++repeats_[call.name];
  return ok_status();
}

Status Session::too_little_memory(const std::string& why) {
  return out_of_memory(
      cat(why.empty() ? kElsewhere : why, ", with one sample in each micro-batch"));
}

bool Session::cut_smaller(const Call& call, CallRows& rows, size_t minibatch,
                          const std::string& why) {
  const std::optional<int64_t> tokens = rows.cut_smaller(id_of(call), position_.step, minibatch);
  if (!tokens) return false;
  ++repeats_[call.name];
  if (leads(id_of(call)))
    log_warning(cat("call ", call.name, ": out of memory (", why.empty() ? kElsewhere : why,
                    "); it goes on with micro-batches of at most ", *tokens,
                    " tokens (train.micro_tokens)"));
  return true;
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
  return end.exit == ExitCondition::kDrained ? generation_.drained()
                                             : trainings_.at(end.call).done();
}

Status Session::end_region(const Call& call) {
  if (call.kind == CallKind::kGenerate) {
    BRAID_TRY(end_generation(call));
  } else {
    models_->note_training(call.role);
  }
  leave_call(call);
  return ok_status();
}

Status Session::end_generation(const Call& call) {
  BRAID_TRY(generation_.finish(store_));
  const CallId id = id_of(call);
  ledger_.expect(call.name, static_cast<int64_t>(store_.size()));
  if (!rows_.leads_replica(id, rank())) return ok_status();
  const Rows mine = rows_.mine(id, position_.step, rank());
  const std::string responses = store_.responses_of(call);
  ledger_.computed(call.name, rows_with_tokens(store_, responses, mine));
  if (responses == "response_ids") note_lengths(store_, mine, metrics_);
  return ok_status();
}

std::vector<Json> Session::sample_rows(size_t count) const {
  return braid::sample_rows(store_, data_.tokenizer_or_null(), position_.step - 1, count);
}

}  // namespace braid::inline session
