// Runs in which something would be wrong without a word: another day, another tokenizer, weights
// that an export rounds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "data/tokenizer/tokenizer.h"
#include "runs/job_testing.h"
#include "session/testing.h"
#include "session/tokenizer_testing.h"

namespace braid {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Zones 26 hours apart never have the same day.
constexpr const char* kEarlier = "TZ=AAA12";
constexpr const char* kLater = "TZ=BBB-14";

class RunSilence : public JobRun {
 protected:
  // The quickstart's model with another file beside it.
  static std::string model_with(const std::string& name, const std::string& file,
                                const std::string& text) {
    const std::string folder = path(name);
    EXPECT_TRUE(make_folder(folder).ok());
    for (const char* copied : {"config.json", "tokenizer.json", "tokenizer_config.json"})
      EXPECT_TRUE(write_file_atomic(
                      join_path(folder, copied),
                      *read_file(cat(BRAID_SOURCE_DIR, "/examples/quickstart/model/", copied)))
                      .ok());
    EXPECT_TRUE(write_file_atomic(join_path(folder, file), text).ok());
    return folder;
  }

  // Options of a run whose prompts end in the day of the month.
  static std::vector<std::string> dated(std::vector<std::string> more) {
    const std::string folder =
        model_with("template-date", "chat_template.jinja",
                   "{% for m in messages %}{{ m.content }}{% endfor %}{{ strftime_now('%d') }}=");
    std::string lines;
    for (int i = 0; i < 8; ++i)
      lines +=
          Json{{"prompt", {{{"role", "user"}, {"content", cat("sort", i, 3)}}}}, {"label", "1"}}
              .dump() +
          "\n";
    EXPECT_TRUE(write_file_atomic(path("template-date.jsonl"), lines).ok());
    more.insert(more.end(),
                {"tokenizer.path=" + folder, "data.train=" + path("template-date.jsonl")});
    return more;
  }

  // data.template_date of the configuration that a run wrote.
  static std::string date_of(const std::string& run) {
    const std::string text = *read_file(path(run + "/config.yaml")), key = "template_date: ";
    const size_t at = text.find(key) + key.size();
    return text.substr(at, text.find('\n', at) - at);
  }

  // The type of the weights of an exported model, which all have it.
  static std::string dtype_of(const std::string& folder) {
    const auto file = SafetensorsFile::open(join_path(folder, "model.safetensors"));
    EXPECT_TRUE(file.ok()) << file.status().message();
    std::string out;
    for (const auto& [name, entry] : file->entries()) {
      EXPECT_TRUE(out.empty() || out == entry.dtype) << name;
      out = entry.dtype;
    }
    return out;
  }
};

TEST_F(RunSilence, TheDayOfATemplateIsThatOnWhichTheRunBegan) {
  const CommandOutcome first =
      shell(kEarlier, command("day", "grpo", dated({"train.total_steps=1"})));
  ASSERT_EQ(first.exit_code, 0) << first.output;
  const std::string day = date_of("day");
  const std::string said = cat("the chat template writes the date; it sees ", day, " as today");
  EXPECT_THAT(first.output, HasSubstr(said));
  EXPECT_EQ(first.output.find(said), first.output.rfind(said)) << first.output;

  const CommandOutcome later = shell(
      kLater, command("day", "grpo", dated({"train.total_steps=2", "checkpoint.resume=auto"})));
  ASSERT_EQ(later.exit_code, 0) << later.output;
  EXPECT_THAT(later.output, HasSubstr(said));
  EXPECT_EQ(date_of("day"), day);
  const CommandOutcome other =
      shell(kLater, command("day", "grpo",
                            dated({"train.total_steps=3", "checkpoint.resume=auto",
                                   "data.template_date=2001-02-03"})));
  EXPECT_EQ(other.exit_code, 2) << other.output;
  EXPECT_THAT(other.output, HasSubstr(cat("data.template_date was '", day, "', is '2001-02-03'")));

  // A run that begins there has its own day.
  finish(
      command("stated", "grpo", dated({"train.total_steps=1", "data.template_date=2001-02-03"})));
  EXPECT_EQ(date_of("stated"), "2001-02-03");
  const CommandOutcome dry = shell(kLater, [] {
    auto argv = command("dry", "grpo", dated({"--dry-run"}));
    return argv;
  }());
  EXPECT_EQ(dry.exit_code, 0) << dry.output;
  EXPECT_THAT(dry.output, AllOf(HasSubstr("the chat template writes the date"),
                                Not(HasSubstr(cat("sees ", day)))));
}

// Ranks on either side of midnight.
TEST_F(RunSilence, RanksSeeOneDay) {
  const std::string plan =
      "plan.file=" + write_plan({"days", "grpo", "1x2", everywhere("grpo", "dp: 2", "dp: 2")});
  const auto job = [&](const std::string& name, const char* zone, int port) {
    const auto rank = [&](int number, const char* tz) {
      std::string line = cat(tz, " WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 RANK=", number,
                             " LOCAL_RANK=", number, " MASTER_ADDR=127.0.0.1 MASTER_PORT=", port);
      for (const std::string& word :
           command(name, "grpo", dated({plan, "train.threads=1", "train.total_steps=2"})))
        line += " '" + word + "'";
      return line;
    };
    const CommandOutcome end =
        run_shell(cat("( ", rank(1, zone), " & ", rank(0, kEarlier), "; wait ) 2>&1"));
    EXPECT_EQ(end.exit_code, 0) << end.output;
  };
  job("days-one", kEarlier, 29553);
  same_kernels("days-one", "days-two");
  job("days-two", kLater, 29554);
  ASSERT_EQ(metrics("days-one").size(), 2u);
  EXPECT_EQ(metrics("days-one"), metrics("days-two"));
  EXPECT_EQ(date_of("days-one"), date_of("days-two"));
}

TEST_F(RunSilence, AnExportHasTheTypeThatWasTrained) {
  Json config = *parse_json(
      *read_file(cat(BRAID_SOURCE_DIR, "/examples/quickstart/model/config.json")), "config.json");
  config["torch_dtype"] = "bfloat16";
  const std::string source = model_with("short", "config.json", config.dump());
  const std::string stated = "model.config=" + source + "/config.json";
  const Finished full =
      run_program(command("all-in-full", "grpo", {stated, "train.total_steps=1"}));
  ASSERT_EQ(full.end, "exited with status 0") << full.errors;
  EXPECT_EQ(dtype_of(path("all-in-full/export/actor")), "F32");
  EXPECT_THAT(full.errors, AllOf(HasSubstr("export of actor: weights in float32"),
                                 HasSubstr("are in bfloat16")));
  EXPECT_THAT(*read_file(path("all-in-full/export/actor/config.json")), HasSubstr("\"float32\""));
  const Finished half =
      run_program(command("half", "grpo", {stated, "model.dtype=bf16", "train.total_steps=1"}));
  ASSERT_EQ(half.end, "exited with status 0") << half.errors;
  EXPECT_EQ(dtype_of(path("half/export/actor")), "BF16");
  EXPECT_THAT(half.errors, Not(HasSubstr("export of actor: weights")));
  const Finished asked =
      run_program(command("asked", "grpo", {stated, "export.dtype=bf16", "train.total_steps=1"}));
  ASSERT_EQ(asked.end, "exited with status 0") << asked.errors;
  EXPECT_EQ(dtype_of(path("asked/export/actor")), "BF16");
  finish({BRAID_BINARY, "export", path("asked/checkpoints/step-000001"), path("asked-f16"),
          "export.dtype=f16"});
  EXPECT_EQ(dtype_of(path("asked-f16/actor")), "F16");
  EXPECT_THAT(*read_file(path("asked-f16/actor/config.json")), HasSubstr("\"float16\""));
}

class RunTokenizers : public RunSilence {
 protected:
  // A reward model whose tokenizer has two digits in each other's place, or none.
  static std::string reward_model(const std::string& name, bool tokenizer, bool exchanged) {
    const std::string trained = "tokenizers-rm";
    if (!path_exists(path(trained + "/export")))
      finish(command(trained, "rm", {"train.total_steps=1", "checkpoint.every_steps=0"}));
    const std::string folder = path(name);
    std::filesystem::copy(path(trained + "/export/reward"), folder,
                          std::filesystem::copy_options::recursive);
    const std::string file = join_path(folder, "tokenizer.json");
    if (!tokenizer) {
      EXPECT_TRUE(std::filesystem::remove(file));
      return folder;
    }
    OrderedJson json = *parse_ordered_json(*read_file(file), file);
    if (exchanged) std::swap(json["model"]["vocab"]["3"], json["model"]["vocab"]["7"]);
    EXPECT_TRUE(write_file_atomic(file, json.dump()).ok());  // other bytes in any case
    return folder;
  }

  static Finished run(const std::string& name, const std::string& algorithm,
                      const std::string& option, bool dry) {
    auto argv = command(name, algorithm, {option, "train.total_steps=1"});
    if (dry) argv.push_back("--dry-run");
    return run_program(argv);
  }
};

TEST_F(RunTokenizers, ARewardModelOfAnotherTokenizerReadsTexts) {
  const std::string other = reward_model("other-rm", true, true);
  const std::string same = reward_model("same-rm", true, false);
  const std::string none = reward_model("none-rm", false, false);
  const auto asks = [](const std::string& folder) {
    return "reward=[{type: model, path: " + folder + "}]";
  };
  const auto says = testing::AllOf(HasSubstr("reward 'model': " + other + " has another tokenizer"),
                                   HasSubstr("token 8 is '3' here and '7' there"),
                                   HasSubstr("it is given texts, in tokens of its own"));
  for (const bool dry : {true, false}) {
    SCOPED_TRACE(dry);
    const Finished read = run(cat("rm-other-", dry), "grpo", asks(other), dry);
    EXPECT_EQ(read.end, "exited with status 0") << read.errors;
    EXPECT_THAT(read.errors, says);
    const Finished taken = run(cat("rm-same-", dry), "grpo", asks(same), dry);
    EXPECT_EQ(taken.end, "exited with status 0") << taken.errors;
    EXPECT_THAT(taken.errors, Not(HasSubstr("tokenizer")));
    const Finished unknown = run(cat("rm-none-", dry), "grpo", asks(none), dry);
    EXPECT_EQ(unknown.end, "exited with status 0") << unknown.errors;
    EXPECT_THAT(unknown.errors, HasSubstr("there is no tokenizer.json beside the model"));
  }
  const Finished evaluated =
      run_program({BRAID_BINARY, "eval", "model.config=" + quickstart_model() + "/config.json",
                   "tokenizer.path=" + same, "data.eval=task:sort_digits:8",
                   "rollout.max_response_length=6", asks(other)});
  EXPECT_EQ(evaluated.end, "exited with status 0") << evaluated.errors;
  EXPECT_THAT(evaluated.errors, says);
}

// The rewards of a run are what `braid score` says of its texts. `kind`: of prompt and of line.
TEST_F(RunTokenizers, ScoresAreThoseOfBraidScore) {
  const std::string model = reward_model("scored-rm", true, false);
  give_own_tokenizer(model);
  const std::string chat =
      "{% for m in messages %}{{ m.role[0] }}={{ m.content }} {% endfor %}"
      "{% if add_generation_prompt %}a={% endif %}";
  const std::string policy = path("chat-policy");
  std::filesystem::copy(quickstart_model(), policy, std::filesystem::copy_options::recursive);
  for (const std::string& folder : {model, policy})
    ASSERT_TRUE(write_file_atomic(join_path(folder, "chat_template.jinja"), chat).ok());
  const Tokenizer tokenizer = *load_tokenizer(policy);
  for (const char* format : {"text", "chat"}) {
    const std::string name = cat("scored-", format);
    // One model is asked by the call of the rewards, two by calls of their own.
    for (const int models : {1, 2}) {
      SCOPED_TRACE(cat(format, " ", models));
      const std::string run_name = cat(name, models);
      std::string list = cat("{type: model, name: own, path: ", model, "}");
      if (models == 2) list += cat(", {type: model, name: twin, path: ", model, ", weight: 0}");
      finish(command(run_name, "grpo",
                     {"tokenizer.path=" + policy, cat("data.prompt_format=", format),
                      cat("reward=[", list, "]"), "rollout.record=true", "train.total_steps=2",
                      "data.max_prompt_length=64"}));
      if (HasFatalFailure()) return;
      std::string lines;
      std::vector<double> rewards;
      for (const Json& row : read_rows(path(run_name + "/rollouts.jsonl"))) {
        const std::string response =
            *tokenizer.decode(row.at("response_ids").get<std::vector<int32_t>>(), true);
        Json line = {{"text", row.at("prompt").get<std::string>() + response}};
        if (std::string(format) == "chat") {
          std::string prompt = row.at("prompt");  // "u=... a="
          prompt = prompt.substr(2, prompt.size() - 5);
          line = {{"messages",
                   {{{"role", "user"}, {"content", prompt}},
                    {{"role", "assistant"}, {"content", response}}}}};
        }
        lines += line.dump() + "\n";
        rewards.push_back(row.at("raw_reward"));
      }
      const std::string file = path(run_name + "-lines.jsonl");
      ASSERT_TRUE(write_file_atomic(file, lines).ok());
      const Finished scored =
          run_program({BRAID_BINARY, "score", model, "--input", file, "--json"});
      ASSERT_EQ(scored.lines.size(), rewards.size()) << scored.errors;
      ASSERT_FALSE(rewards.empty());
      for (size_t i = 0; i < rewards.size(); ++i)
        EXPECT_NEAR(parse_json(scored.lines[i], "line")->at("values").back().get<double>(),
                    rewards[i], 1e-6)
            << i;
    }
  }
}

TEST_F(RunTokenizers, ACriticBeginsAsARewardModelOfThePolicysTokenizer) {
  const std::string other = reward_model("critic-rm", true, true);
  auto argv = command("critic-begins", "ppo",
                      {"critic.init_from=reward_model",
                       "reward=[{type: model, path: " + other + "}]", "train.total_steps=1"});
  const Finished refused = run_program(argv);
  EXPECT_EQ(refused.end, "exited with status 2") << refused.errors;
  EXPECT_THAT(refused.errors, HasSubstr("critic.init_from: " + other + " has another tokenizer"));
}

TEST_F(RunTokenizers, RolesOfAnotherTokenizerAreRefused) {
  const std::string policy = path("tokenizers-policy/export/actor");
  finish(command("tokenizers-policy", "grpo", {"train.total_steps=1", "checkpoint.every_steps=0"}));
  const std::string other = path("other-policy");
  std::filesystem::copy(policy, other, std::filesystem::copy_options::recursive);
  const std::string file = join_path(other, "tokenizer.json");
  OrderedJson json = *parse_ordered_json(*read_file(file), file);
  std::swap(json["model"]["vocab"]["a"], json["model"]["vocab"]["b"]);
  ASSERT_TRUE(write_file_atomic(file, json.dump()).ok());
  for (const bool dry : {true, false})
    for (const auto& [key, algorithm] :
         {std::pair("reference.path", "ppo"), std::pair("critic.path", "ppo"),
          std::pair("teacher.path", "distill")}) {
      SCOPED_TRACE(cat(key, dry));
      const Finished refused = run("roles-other", algorithm, cat(key, "=", other), dry);
      EXPECT_EQ(refused.end, "exited with status 2") << refused.errors;
      EXPECT_THAT(refused.errors, AllOf(HasSubstr(cat(key, ": ", other, " has another tokenizer")),
                                        HasSubstr("token 15 is 'a' here and 'b' there")));
    }
  EXPECT_EQ(run("roles-same", "ppo", "reference.path=" + policy, true).end, "exited with status 0");
  EXPECT_EQ(run("roles-same", "distill", "teacher.path=" + policy, true).end,
            "exited with status 0");
}

}  // namespace
}  // namespace braid
