// What a session is made of: what it checks and loads before there is one.
#include <ATen/Parallel.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/ceil_div.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "config/algorithm_check.h"
#include "config/algorithm_traits.h"
#include "config/evaluates.h"
#include "device/tensor_memory.h"
#include "host/machine.h"
#include "identity/fingerprint.h"
#include "inputs/reward_columns.h"
#include "plan/make_problem.h"
#include "program/exchange.h"
#include "session/check_models.h"
#include "session/session.h"
#include "weights/check_tokenizers.h"
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

// What is replayed does not say which samples had finished when.
Status check_streamed(const Config& config, const Program& program) {
  if (!program.scoring.streamed.is_on() || config.rollout.replay.empty()) return ok_status();
  return invalid_input(
      "rollout.replay: rollouts that are read are there at once, and the plan trains some while "
      "others are generated (fusion.train_beside_generation); remove one of them");
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

// Of what is not trained: weights in memory, and `of_files`.
Json fingerprints_of(const Config& config, const Roles& roles, const RewardModels& scorers,
                     const Json& of_files) {
  Json out = frozen_fingerprints(config, roles, scorers);
  out.update(of_files, true);
  return out;
}

}  // namespace

struct Session::Loaded {
  std::string job;
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
  Json of_files;  // fingerprints: own functions, and on the first rank stored weights
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
  BRAID_TRY(check_streamed(config, program));
  BRAID_TRY(check_world(program, world));
  BRAID_TRY(set_threads(config, world));
  BRAID_TRY(set_memory_limit(config));
  Loaded loaded;
  loaded.change = change;
  BRAID_ASSIGN(loaded.job, world == nullptr ? process_identity() : world->job());
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
  BRAID_ASSIGN(loaded.of_files, own_function_fingerprints(config));
  BRAID_ASSIGN(loaded.models, RankModels::load(config, program, world));
  if (leads) {  // it writes them to checkpoints, and compares them
    BRAID_ASSIGN(const Json stored, stored_fingerprints(config, graph));
    loaded.of_files.update(stored);
  }
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
      calls_(step_, loaded.everyone, data_, scoring_,
             [this] { return state_.follow_data_check(); }),
      state_(step_, data_, calls_.ahead.get(), calls_.carried.get(), calls_.fetches.history(),
             fingerprints_of(config_, models_->roles(), scoring_.models(), loaded.of_files)),
      evaluation_(step_, calls_.infers, scoring_, needs_, std::move(loaded.evaluator),
                  std::move(loaded.eval_models)),
      report_(step_, loaded.device),
      device_(loaded.device),
      saves_(step_, std::move(loaded.job)) {
  models_->rest();
}

}  // namespace braid::inline session
