#include "launch/smoke.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/json.h"
#include "base/text.h"
#include "checkpoint/run_folder.h"
#include "config/evaluates.h"
#include "dataflow/graph.h"
#include "host/file.h"
#include "host/hub_cache.h"
#include "models/family.h"
#include "models/spec.h"
#include "nn/model.h"
#include "plan/make_problem.h"
#include "plan/run_keys.h"

namespace braid::inline launch {
namespace {

constexpr int64_t kTinyWidth = 256;  // hidden size up to which a model stays as it is

constexpr const char* kTinyLlama = R"({
 "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32,
 "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
 "num_key_value_heads": 2, "vocab_size": 272, "max_position_embeddings": 4096,
 "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu", "bos_token_id": 256,
 "eos_token_id": 258, "tie_word_embeddings": true, "torch_dtype": "float32"})";

constexpr const char* kChatMl =
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' }}"
    "{% if message.role == 'assistant' %}{% generation %}{{ message.content + '<|im_end|>' }}"
    "{% endgeneration %}{% else %}{{ message.content + '<|im_end|>' }}{% endif %}{{ '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

// The sizes of a tiny model by their names in the config.json of the families.
const std::map<std::string, int64_t>& tiny_sizes() {
  static const std::map<std::string, int64_t> sizes = {{"hidden_size", 32},
                                                       {"n_embd", 32},
                                                       {"d_model", 32},
                                                       {"word_embed_proj_dim", 32},
                                                       {"intermediate_size", 64},
                                                       {"ffn_dim", 64},
                                                       {"n_inner", 64},
                                                       {"ffn_hidden_size", 64},
                                                       {"num_hidden_layers", 2},
                                                       {"n_layer", 2},
                                                       {"n_layers", 2},
                                                       {"num_attention_heads", 4},
                                                       {"n_head", 4},
                                                       {"n_heads", 4},
                                                       {"num_key_value_heads", 2},
                                                       {"head_dim", 8},
                                                       {"rotary_dim", 8},
                                                       {"max_window_layers", 2},
                                                       {"moe_intermediate_size", 32}};
  return sizes;
}

// UTF-8 of the character that byte-level tokenizers write for a byte (GPT-2's table).
std::string byte_character(int byte, int* next) {
  const bool visible = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  const int code = visible ? byte : 256 + (*next)++;
  if (code < 128) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 63))};
}

// A token for each byte, and those of ChatML.
Json byte_tokenizer() {
  Json vocabulary = Json::object(), added = Json::array();
  int next = 0;
  for (int byte = 0; byte < 256; ++byte) vocabulary[byte_character(byte, &next)] = byte;
  int id = 256;
  for (const char* token : {"<s>", "<|im_start|>", "<|im_end|>"})
    added.push_back({{"id", id++},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  const Json bytes = {{"type", "ByteLevel"},
                      {"add_prefix_space", false},
                      {"trim_offsets", true},
                      {"use_regex", true}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", bytes},
          {"post_processor", nullptr},
          {"decoder", bytes},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", vocabulary},
            {"merges", Json::array()}}}};
}

// Where the tiny models take their architecture and their tokenizer from.
struct Source {
  std::string config;     // file; "": kTinyLlama
  std::string tokenizer;  // folder or file; "": byte_tokenizer()
};

bool has_tokenizer(const std::string& folder) {
  return path_exists(join_path(folder, "tokenizer.json"));
}

Source source_of(const Config& config) {
  Source out;
  const auto located = config.model.path.empty() ? Result<std::string>(not_found("model.path"))
                                                 : locate_model(config.model.path);
  if (located.ok()) {
    out.config = join_path(*located, "config.json");
    if (has_tokenizer(*located)) out.tokenizer = *located;
  } else if (config.model.path.empty()) {
    out.config = config.model.config;
  }
  // A tokenizer of another model than the llama has ids that it may lack.
  if (!config.tokenizer.path.empty() && !out.config.empty()) out.tokenizer = config.tokenizer.path;
  return out;
}

// The architecture with the sizes of a tiny one, where it is larger.
Result<Json> tiny_config(const std::string& text, const std::string& where) {
  BRAID_ASSIGN(Json json, parse_json(text, where));
  BRAID_ASSIGN(const ModelSpec spec, parse_model_spec(text, where));
  if (spec.hidden <= kTinyWidth) return json;
  for (const auto& [name, size] : tiny_sizes())
    if (json.contains(name) && json[name].is_number()) json[name] = size;
  if (json.contains("layer_types") && json["layer_types"].is_array())
    json["layer_types"] =
        Json(std::vector<Json>(json["layer_types"].begin(), json["layer_types"].begin() + 2));
  return json;
}

Status write_base(const std::string& folder, const Source& source, const Json& config) {
  BRAID_TRY(make_folder(folder));
  BRAID_TRY(write_file_atomic(join_path(folder, "config.json"), config.dump(1)));
  if (!source.tokenizer.empty()) return ok_status();
  BRAID_TRY(write_file_atomic(join_path(folder, "tokenizer.json"), byte_tokenizer().dump()));
  return write_file_atomic(
      join_path(folder, "tokenizer_config.json"),
      Json({{"bos_token", "<s>"}, {"eos_token", "<|im_end|>"}, {"chat_template", kChatMl}}).dump());
}

// Random weights as a Hugging Face folder; with a score head in place of the language model's, or
// not.
Status write_model(const std::string& base, const std::string& folder, const Source& source,
                   bool scores) {
  BRAID_ASSIGN(const std::string text, read_file(join_path(base, "config.json")));
  BRAID_ASSIGN(ModelSpec spec, parse_model_spec(text, base));
  spec.scalar_head = scores;
  if (scores) spec.architecture = family_of(spec).score_architecture;
  BRAID_ASSIGN(const std::unique_ptr<Model> model, make_model(spec, ModelOptions{}));
  std::filesystem::remove_all(folder);
  ExportOptions options;
  options.source_folder = base;
  options.tokenizer = source.tokenizer;
  options.dtype = at::kFloat;
  return save_model(*model, folder, options);
}

constexpr int64_t kSmokeSteps = 2;  // at most

class Replacing {
 public:
  Replacing(const Config& config, Smoke* out)
      : config_(config), graph_(make_graph(config.algorithm)), out_(out) {}

  void set(const std::string& key, const std::string& value, const std::string& before,
           const std::string& why = "") {
    if (value == before) return;
    out_->overrides.push_back(cat(key, "=", value));
    out_->notes.push_back(cat(key, ": ", value, before.empty() ? "" : cat(" in place of ", before),
                              why.empty() ? "" : cat(" (", why, ")")));
  }
  // A key that the run does not read stays as it is: to set it would be warned of.
  void at_most(const std::string& key, int64_t most, int64_t before) {
    const bool read = !graph_.ok() || why_unread(key, {config_, *graph_}).empty();
    if (read && before > most) set(key, cat(most), cat(before));
  }

 private:
  const Config& config_;
  Result<Graph> graph_;  // what is wrong with it is said when the run reads it
  Smoke* out_;
};

// Of the run, where its keys say it; what is wrong with them is said when they are read.
int64_t devices_of(const Config& config) {
  int64_t counted = 1, number = 0;
  for (const char* key : {"nodes", "gpus_per_node"})
    if (const YamlNode* value = config.cluster.find(key))
      if (parse_int(value->scalar, &number)) counted *= std::clamp<int64_t>(number, 1, 64);
  const auto graph = make_graph(config.algorithm);
  const auto stated = graph.ok() ? devices_stated(config, *graph) : Result<int>(graph.status());
  return std::max<int64_t>(counted, stated.ok() ? *stated : 1);
}

// Warm-ups that end within the run, as those of the recipe do.
void replace_warmups(const Config& config, int64_t steps, Replacing& replace) {
  int64_t updates = 0;
  if (__builtin_mul_overflow(config.train.minibatches, config.train.epochs_per_rollout, &updates) ||
      __builtin_mul_overflow(updates, steps, &updates))
    return;  // an error of the run
  const int64_t most = std::max<int64_t>(0, updates - 1);
  replace.at_most("optim.actor.warmup_steps", most, config.optim.actor.warmup_steps);
  replace.at_most("optim.critic.warmup_steps", most, config.optim.critic.warmup_steps);
  replace.at_most("optim.reward.warmup_steps", most, config.optim.reward.warmup_steps);
  replace.at_most("critic.warmup_steps", 1, config.critic.warmup_steps);
}

void replace_sizes(const Config& config, Replacing& replace) {
  replace.set("run.name", config.run.name + "-smoke", config.run.name);
  replace.set("run.overwrite", "true", config.run.overwrite ? "true" : "false");
  replace.at_most("train.total_steps", kSmokeSteps, config.train.total_steps);
  // No fewer sequences in a mini-batch than data-parallel replicas.
  replace.at_most("rollout.prompts_per_step",
                  std::max<int64_t>(2, devices_of(config)) * config.train.minibatches,
                  config.rollout.prompts_per_step);
  replace.at_most("rollout.samples_per_prompt", 2, config.rollout.samples_per_prompt);
  replace.at_most("rollout.max_response_length", 8, config.rollout.max_response_length);
  replace_warmups(config, std::min(kSmokeSteps, config.train.total_steps), replace);
  replace.at_most("log.samples_every", 1, config.log.samples_every);
  if (!evaluates(config)) return;
  replace.at_most("eval.every_steps", 1, config.eval.every_steps);
  if (config.eval.prompts != 2)
    replace.set("eval.prompts", "2", config.eval.prompts == 0 ? "all" : cat(config.eval.prompts));
}

void replace_models(const Config& config, const std::string& model, const std::string& scorer,
                    const std::string& kind, Replacing& replace) {
  const bool states_config = config.model.path.empty() && !config.model.config.empty();
  if (!states_config) replace.set("model.path", model, config.model.path, kind);
  const std::pair<const char*, std::string> others[] = {{"reference.path", config.reference.path},
                                                        {"teacher.path", config.teacher.path}};
  for (const auto& [key, path] : others)
    if (!path.empty()) replace.set(key, model, path);
  if (!config.critic.path.empty()) replace.set("critic.path", scorer, config.critic.path);
}

}  // namespace

Result<Smoke> make_smoke(const LoadedConfig& loaded, bool writes) {
  const Config& config = loaded.config;
  Smoke out;
  Replacing replace(config, &out);
  replace_sizes(config, replace);
  const Source source = source_of(config);
  std::string text = kTinyLlama;
  if (!source.config.empty()) {
    BRAID_ASSIGN(text, read_file(source.config));
  }
  BRAID_ASSIGN(const Json tiny, tiny_config(text, source.config.empty() ? "llama" : source.config));
  const std::string folder = run_folder(config) + "-smoke-models";
  const std::string base = join_path(folder, "base"), model = join_path(folder, "model");
  out.scorer = join_path(folder, "scorer");
  if (writes) {
    BRAID_TRY(write_base(base, source, tiny));
    BRAID_TRY(write_model(base, model, source, false));
    BRAID_TRY(write_model(base, out.scorer, source, true));
  }
  const std::string kind =
      cat("a tiny random ", tiny.value("model_type", "model"),
          source.config.empty() ? "; its own is not on this machine, nor its family" : "");
  replace_models(config, model, out.scorer, kind, replace);
  if (source.tokenizer.empty())
    replace.set("tokenizer.path", base, config.tokenizer.path, "a token for each byte");
  for (const RewardConfig& reward : config.reward)
    if (reward.type == "model")
      out.notes.push_back(cat("reward ", reward.name, ": path ", out.scorer, " in place of ",
                              reward.path, " (random scores)"));
  return out;
}

void use_scorer(const Smoke& smoke, LoadedConfig* loaded) {
  YamlNode* list = loaded->resolved.find("reward");
  for (size_t i = 0; i < loaded->config.reward.size(); ++i) {
    RewardConfig& reward = loaded->config.reward[i];
    if (reward.type != "model") continue;
    reward.path = smoke.scorer;
    YamlNode* path = list->list[i].find("path");
    path->scalar = smoke.scorer;
    path->origin = "--smoke";
  }
}

}  // namespace braid::inline launch
