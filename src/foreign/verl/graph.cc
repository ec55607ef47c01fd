// The calls of a verl job as a dataflow graph.
#include <algorithm>

#include "base/text.h"
#include "foreign/verl/verl.h"
#include "plan/make_problem.h"

namespace braid::inline foreign {
namespace {

using Notes = std::vector<std::string>;

struct Estimator {
  const char* verl;
  const char* ours;
};
// Estimators, of verl and of its recipes, that are algorithms here. All others score groups of
// samples and cost what GRPO costs.
constexpr Estimator kEstimators[] = {
    {"gae", "ppo"},
    {"grpo", "grpo"},
    {"grpo_vectorized", "grpo"},
    {"rloo", "rloo"},
    {"rloo_vectorized", "rloo"},
    {"remax", "remax"},
    {"reinforce_plus_plus", "reinforce_plus_plus"},
    {"reinforce_plus_plus_baseline", "reinforce_plus_plus_baseline"},
    {"dapo", "dapo"},
    {"gspo", "gspo"},
    {"cispo", "cispo"},
};

// Others that are known: no slips of the pen.
constexpr const char* kGroupEstimators[] = {"opo",   "gpg",    "gdpo",       "gvpo",      "spo",
                                            "sppo",  "spin",   "gmpo",       "sapo",      "dppo",
                                            "prime", "flowrl", "elliptical", "grpo_passk"};

// A word that is a slip away from an estimator with calls of its own, and no estimator itself.
Status check_estimator(const std::string& name) {
  std::vector<std::string> own;
  for (const Estimator& entry : kEstimators) own.push_back(entry.verl);
  const bool group = std::find(std::begin(kGroupEstimators), std::end(kGroupEstimators), name) !=
                     std::end(kGroupEstimators);
  const bool known = std::find(own.begin(), own.end(), name) != own.end();
  const std::string near =
      *std::min_element(own.begin(), own.end(), [&](const std::string& a, const std::string& b) {
        return edit_distance(name, a) < edit_distance(name, b);
      });
  if (known || group || edit_distance(name, near) > foreign::kTypingSlip) return ok_status();
  return invalid_input(cat("algorithm.adv_estimator: '", name,
                           "' is not known here (did you mean '", near, "'?)",
                           "; known: ", join(own, ", "), "; say the one whose calls it has"));
}

bool is_true(const std::string& text) { return lowered(text) == "true"; }

// What GRPO's advantages are used for, by its loss and by which samples it learns from.
std::string kind_of_grpo(const VerlSettings& s) {
  if (s.loss_mode == "gspo" || s.loss_mode == "cispo") return s.loss_mode;
  return s.filter_groups ? "dapo" : "grpo";
}

std::string algorithm_of(const VerlSettings& s, Notes* notes) {
  if (is_true(s.critic_enabled)) return "ppo";
  for (const Estimator& entry : kEstimators) {
    if (s.adv_estimator != entry.verl) continue;
    const std::string ours = entry.ours;
    if (ours == "grpo") return kind_of_grpo(s);
    if (ours != "ppo" || s.critic_enabled == "null") return ours;
  }
  const bool reinforce = s.adv_estimator.rfind("reinforce", 0) == 0;
  notes->push_back(cat("algorithm.adv_estimator=", s.adv_estimator, " is planned as ",
                       reinforce ? "REINFORCE" : "GRPO", ": the nearest graph"));
  return reinforce ? "reinforce" : "grpo";
}

// The teacher of distillation: a forward of its own over what was sampled, whose log-probs the
// update of the actor reads.
Graph with_teacher(Graph graph) {
  const RoleId teacher{"teacher"};
  Call pass;
  pass.name = "teacher_logprob";
  pass.kind = CallKind::kInfer;
  pass.role = teacher;
  pass.function = "logprobs";
  pass.reads = {"prompt_ids", "response_ids"};
  pass.writes = {{"teacher_logprobs"}};
  graph.roles.push_back({teacher, false, false});
  const auto update = std::find_if(graph.calls.begin(), graph.calls.end(), [](const Call& call) {
    return call.kind == CallKind::kTrainStep && call.role.value == "actor";
  });
  update->reads.emplace_back("teacher_logprobs");
  graph.calls.insert(update, pass);
  declare_sizes(&graph);
  return graph;
}

// Groups whose samples all have one reward are dropped, and prompts are drawn until enough are
// left: the engines, and what scores, see whole generation batches.
void generate_more(const VerlSettings& s, Graph* graph) {
  const int64_t generated = generated_verl_prompts(s);
  if (generated <= s.train_batch_size || s.train_batch_size < 1) return;
  for (Call& call : graph->calls)
    if (call.kind == CallKind::kGenerate || call.kind == CallKind::kReward)
      call.samples_per_prompt =
          (s.samples * generated + s.train_batch_size - 1) / s.train_batch_size;
}

}  // namespace

int64_t generated_verl_prompts(const VerlSettings& s) {
  constexpr int64_t kMost = 1 << 20;
  if (!s.filter_groups || s.fully_async || s.train_batch_size < 1) return s.train_batch_size;
  const int64_t batch =
      std::min(kMost, s.gen_batch_size > 0 ? s.gen_batch_size : s.train_batch_size);
  return (std::min(kMost, s.train_batch_size) + batch - 1) / batch * batch;
}

Result<Graph> verl_graph(const VerlSettings& s, std::vector<std::string>* notes) {
  BRAID_TRY(check_estimator(s.adv_estimator));
  AlgorithmOptions options;
  options.kl.coef = s.kl_in_reward || s.kl_loss ? 0.001 : 0;
  options.kl.in = s.kl_loss && !s.kl_in_reward ? "loss" : "reward";
  options.name = algorithm_of(s, notes);
  if (s.bypass) options.old_logprobs = "sampler";
  BRAID_ASSIGN(Graph graph, make_graph(options));
  if (s.reward_enabled) graph = with_reward_model(std::move(graph));
  if (s.distils) graph = with_teacher(std::move(graph));
  generate_more(s, &graph);
  return graph;
}

}  // namespace braid::inline foreign
