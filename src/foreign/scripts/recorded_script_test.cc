#include "foreign/scripts/recorded_script.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "base/testing.h"
#include "host/file.h"

namespace braid::inline foreign_scripts {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using Words = std::vector<std::string>;

std::vector<Words> words_of(const RecordedScript& script) {
  std::vector<Words> out;
  for (const RecordedCommand& command : script.commands()) out.push_back(command.words);
  return out;
}

// By a program that needs no script: "" where a sandbox can be had.
const std::string& why_no_sandbox() {
  static const std::string why = [] {
    std::string name = (std::filesystem::temp_directory_path() / "braid-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) return std::string("no scratch folder");
    (void)write_file_atomic(join_path(name, "run.sh"), ":");
    const auto script = RecordedScript::run(join_path(name, "run.sh"), {});
    std::filesystem::remove_all(name);
    return script.ok() ? std::string() : script.status().message();
  }();
  return why;
}

class Script : public testing::Test {
 protected:
  void SetUp() override {
    if (!why_no_sandbox().empty()) GTEST_SKIP() << why_no_sandbox();
    std::string name = (std::filesystem::temp_directory_path() / "braid-test-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  Result<RecordedScript> run(const std::string& text, ScriptOptions options = {}) {
    const std::string path = join_path(folder_, "run.sh");
    EXPECT_TRUE(write_file_atomic(path, text).ok());
    return RecordedScript::run(path, options);
  }
  std::string folder_;
};

TEST_F(Script, RecordsWhatConditionsFunctionsAndLoopsStart) {
  const auto script = run(R"(
set -euo pipefail
BACKEND=${BACKEND:-fsdp}
start() { local n=$1; shift; python3 -m trainer nodes=$n "$@"; }
EXTRA=(a=1)
if [ "$BACKEND" = fsdp ]; then EXTRA+=("b='x y'"); else EXTRA+=(c=3); fi
for nodes in 1 2; do start $nodes "${EXTRA[@]}"; done
)");
  ASSERT_TRUE(script.ok()) << script.status().message();
  EXPECT_THAT(words_of(*script),
              ElementsAre(Words({"python3", "-m", "trainer", "nodes=1", "a=1", "b='x y'"}),
                          Words({"python3", "-m", "trainer", "nodes=2", "a=1", "b='x y'"})));
}

TEST_F(Script, StartsNothingAndRemovesNothing) {
  ASSERT_TRUE(write_file_atomic(join_path(folder_, "kept"), "x").ok());
  const auto script =
      run("rm -rf \"" + folder_ + "\"; cd /nowhere; unheard-of --flag; ray start --head");
  ASSERT_TRUE(script.ok()) << script.status().message();
  EXPECT_TRUE(path_exists(join_path(folder_, "kept")));
  EXPECT_THAT(words_of(*script), Contains(Words({"unheard-of", "--flag"})));
  EXPECT_THAT(words_of(*script), Contains(Words({"ray", "start", "--head"})));
}

TEST_F(Script, SeesAnEmptyEnvironmentAndWhatIsGiven) {
  ::setenv("BRAID_TEST_LEAK", "yes", 1);
  ScriptOptions options;
  options.environment = {{"NODES", "4"}};
  const auto script = run("python3 leak=${BRAID_TEST_LEAK:-no} nodes=$NODES", options);
  ::unsetenv("BRAID_TEST_LEAK");
  ASSERT_TRUE(script.ok()) << script.status().message();
  EXPECT_THAT(words_of(*script), ElementsAre(Words({"python3", "leak=no", "nodes=4"})));
}

TEST_F(Script, NamesVariablesThatItNeeds) {
  const auto script = run("set -u\npython3 path=$DATA_HOME/m gpus=$GPUS");
  ASSERT_TRUE(script.ok()) << script.status().message();
  EXPECT_THAT(script->unset_variables(), ElementsAre("DATA_HOME", "GPUS"));
  EXPECT_THAT(words_of(*script),
              ElementsAre(Words({"python3", "path=$DATA_HOME/m", "gpus=$GPUS"})));
}

TEST_F(Script, SourcesFilesBesideIt) {
  ASSERT_TRUE(write_file_atomic(join_path(folder_, "common.sh"), "N=3").ok());
  const auto script =
      run("source \"$(dirname \"$0\")/common.sh\"; source missing.sh; python3 n=$N");
  ASSERT_TRUE(script.ok()) << script.status().message();
  EXPECT_THAT(words_of(*script), Contains(Words({"python3", "n=3"})));
}

TEST_F(Script, EndsAtItsDeadlineAndKeepsWhatItStarted) {
  ScriptOptions options;
  options.deadline_s = 1;
  const auto script = run("python3 x=1\nwhile true; do :; done", options);
  ASSERT_TRUE(script.ok()) << script.status().message();
  EXPECT_THAT(script->stopped(), HasSubstr("is not done after 1 s"));
  EXPECT_THAT(words_of(*script), ElementsAre(Words({"python3", "x=1"})));
}

TEST_F(Script, EndsWhereAllItsProcessesTakeTooMuchMemory) {
  ScriptOptions options;
  options.deadline_s = 60;
  options.memory_bytes = int64_t{16} << 20;
  const auto script = run("for i in {1..12}; do (while :; do :; done) & done; wait", options);
  ASSERT_TRUE(script.ok()) << script.status().message();
  EXPECT_THAT(script->stopped(), HasSubstr("takes more than 16 MiB of memory"));
}

TEST_F(Script, WaitsForWhatRunsInTheBackground) {
  ScriptOptions options;
  options.stand_ins = {"python3"};
  const auto script =
      run("for i in 1 2 3; do nohup python3 n=$i > log.$i 2>&1 & done; wait", options);
  ASSERT_TRUE(script.ok());
  EXPECT_THAT(words_of(*script),
              testing::UnorderedElementsAre(Words({"python3", "n=1"}), Words({"python3", "n=2"}),
                                            Words({"python3", "n=3"})));
  const auto left = run("python3 n=1 > log 2>&1 &", options);
  ASSERT_TRUE(left.ok());
  EXPECT_THAT(words_of(*left), ElementsAre(Words({"python3", "n=1"})));
}

TEST_F(Script, AnswersQuestionsAboutTheMachine) {
  ScriptOptions options;
  options.gpus = 4;
  options.stand_ins = {"nvidia-smi", "python3"};
  const auto script =
      run("python3 n=$(nvidia-smi -L | wc -l) q=$(nvidia-smi --query-gpu=name "
          "--format=csv,noheader | wc -l)",
          options);
  ASSERT_TRUE(script.ok());
  EXPECT_TRUE(script->asked_for_gpus());
  EXPECT_THAT(words_of(*script), Contains(Words({"python3", "n=4", "q=4"})));
}

TEST_F(Script, LeavesALoopThatOnlyWaits) {
  const auto script = run("while true; do sleep 10; done; python3 x=1");
  ASSERT_TRUE(script.ok());
  EXPECT_TRUE(script->left_a_loop());
  EXPECT_THAT(words_of(*script), Contains(Words({"python3", "x=1"})));
}

TEST_F(Script, SaysHowAFailureEnded) {
  const auto script = run("echo \"give MODEL\" >&2; exit 3");
  ASSERT_TRUE(script.ok());
  EXPECT_THAT(script->ending(), HasSubstr("give MODEL"));
  EXPECT_THAT(script->ending(), HasSubstr("3"));
  EXPECT_EQ(RecordedScript::run(folder_ + "/none", {}).status().code(), Code::kNotFound);
}

TEST_F(Script, SeesItsProjectAndWritesToACopyOfIt) {
  ASSERT_TRUE(write_file_atomic(join_path(folder_, "args.txt"), "a=1").ok());
  ASSERT_TRUE(write_file_atomic(join_path(folder_, ".secret"), "s").ok());
  const auto script =
      run("python3 $(cat args.txt) s=$(cat .secret); echo x > args.txt; rm run.sh; "
          "mkdir made; python3 $(cat args.txt)");
  ASSERT_TRUE(script.ok());
  EXPECT_THAT(words_of(*script),
              ElementsAre(Words({"python3", "a=1", "s="}), Words({"python3", "x"})));
  EXPECT_EQ(*read_file(join_path(folder_, "args.txt")), "a=1");
  EXPECT_TRUE(path_exists(join_path(folder_, "run.sh")));
  EXPECT_FALSE(path_exists(join_path(folder_, "made")));
}

}  // namespace
}  // namespace braid::inline foreign_scripts
