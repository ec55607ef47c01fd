#include "host/recorded_script.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "base/testing.h"
#include "host/file.h"

namespace braid {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using Words = std::vector<std::string>;

class Script : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "braid-test-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

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
  EXPECT_THAT(script->commands(),
              ElementsAre(Words({"python3", "-m", "trainer", "nodes=1", "a=1", "b='x y'"}),
                          Words({"python3", "-m", "trainer", "nodes=2", "a=1", "b='x y'"})));
}

TEST_F(Script, StartsNothingAndRemovesNothing) {
  ASSERT_TRUE(write_file_atomic(join_path(folder_, "kept"), "x").ok());
  const auto script =
      run("rm -rf \"" + folder_ + "\"; cd /nowhere; unheard-of --flag; ray start --head");
  ASSERT_TRUE(script.ok()) << script.status().message();
  EXPECT_TRUE(path_exists(join_path(folder_, "kept")));
  EXPECT_THAT(script->commands(), Contains(Words({"unheard-of", "--flag"})));
  EXPECT_THAT(script->commands(), Contains(Words({"ray", "start", "--head"})));
}

TEST_F(Script, SeesAnEmptyEnvironmentAndWhatIsGiven) {
  ::setenv("BRAID_TEST_LEAK", "yes", 1);
  ScriptOptions options;
  options.environment = {{"NODES", "4"}};
  const auto script = run("python3 leak=${BRAID_TEST_LEAK:-no} nodes=$NODES", options);
  ::unsetenv("BRAID_TEST_LEAK");
  ASSERT_TRUE(script.ok()) << script.status().message();
  EXPECT_THAT(script->commands(), ElementsAre(Words({"python3", "leak=no", "nodes=4"})));
}

TEST_F(Script, NamesVariablesThatItNeeds) {
  const auto script = run("set -u\npython3 path=$DATA_HOME/m gpus=$GPUS");
  ASSERT_TRUE(script.ok()) << script.status().message();
  EXPECT_THAT(script->unset_variables(), ElementsAre("DATA_HOME", "GPUS"));
  EXPECT_THAT(script->commands(),
              ElementsAre(Words({"python3", "path=$DATA_HOME/m", "gpus=$GPUS"})));
}

TEST_F(Script, SourcesFilesBesideIt) {
  ASSERT_TRUE(write_file_atomic(join_path(folder_, "common.sh"), "N=3").ok());
  const auto script =
      run("source \"$(dirname \"$0\")/common.sh\"; source missing.sh; python3 n=$N");
  ASSERT_TRUE(script.ok()) << script.status().message();
  EXPECT_THAT(script->commands(), Contains(Words({"python3", "n=3"})));
}

TEST_F(Script, EndsAtItsDeadline) {
  ScriptOptions options;
  options.deadline_s = 0.5;
  const auto script = run("while true; do :; done", options);
  EXPECT_EQ(script.status().code(), Code::kDeadline);
  EXPECT_THAT(script.status().message(), HasSubstr("is not done after 0.5 s"));
}

TEST_F(Script, SaysHowAFailureEnded) {
  const auto script = run("echo \"give MODEL\" >&2; exit 3");
  ASSERT_TRUE(script.ok());
  EXPECT_THAT(script->ending(), HasSubstr("give MODEL"));
  EXPECT_THAT(script->ending(), HasSubstr("3"));
  EXPECT_EQ(RecordedScript::run(folder_ + "/none", {}).status().code(), Code::kNotFound);
}

TEST_F(Script, LeavesNoFolderBehind) {
  std::string scratch;
  {
    const auto script = run("python3 x=1");
    ASSERT_TRUE(script.ok());
    scratch = script->folder();
    EXPECT_TRUE(is_folder(scratch));
  }
  EXPECT_FALSE(path_exists(scratch));
}

}  // namespace
}  // namespace braid
