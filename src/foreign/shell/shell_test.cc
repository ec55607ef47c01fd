#include "foreign/shell/shell.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/text.h"
#include "foreign/shell/arithmetic.h"
#include "test_paths.h"

namespace braid::inline foreign {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Words = std::vector<std::string>;

// The last word of "x=...", which a program is given.
std::string last_word(std::string script) {
  const size_t at = script.rfind("x=");
  if (at != std::string::npos && (at == 0 || script[at - 1] == '\n')) script.insert(at, "cmd ");
  const auto words = shell_words(script);
  return words.ok() && !words->empty() ? words->back() : words.status().message();
}

// What a program is given for `script; cmd $N`.
std::string value_of(const std::string& script) {
  const auto words = shell_words(cat(script, "\ncmd \"$N\""));
  return words.ok() && !words->empty() ? words->back() : words.status().message();
}

std::vector<std::string> assumptions(const std::string& script) {
  const auto reading = read_shell(script);
  return reading.ok() ? reading->assumptions : Words{reading.status().message()};
}

TEST(ShellWords, ResolveQuotesVariablesAndComments) {
  EXPECT_THAT(*shell_words("A=1 B='x y' # no\nA=2\n cmd \\\n key=$A other=\"${B}z\" \"$C\" $D"),
              ElementsAre("cmd", "key=2", "other=x yz", "$C"));
  EXPECT_EQ(last_word("A=1\nx='$A'"), "x=$A");
  EXPECT_EQ(last_word("A=1\nx=\"\\$A\""), "x=$A");
  EXPECT_EQ(last_word("export A=7\nset -x\nx=$A"), "x=7");
  EXPECT_EQ(last_word("A=1\r\ncmd \\\r\nx=$A"), "x=1");
  EXPECT_EQ(last_word("x=$'a\\tb'"), "x=a\tb");
}

TEST(ShellWords, SequencesEndAtTheLargestNumbers) {
  EXPECT_EQ(value_of("N=$(seq 3 -1 1 | tr '\\n' ,)"), "3,2,1,");
  EXPECT_EQ(value_of("N=$(seq 9223372036854775806 9223372036854775807 | tail -n 1)"),
            "9223372036854775807");
  EXPECT_EQ(value_of("N=$(seq 2 1)"), "");
  // Longer ones are not known, as the output of other programs is not.
  for (const char* ends : {"1 1000000000000000000", "-9223372036854775807 9223372036854775807"})
    EXPECT_NE(value_of(cat("N=$(seq ", ends, " | tail -n 1)")), "1000000000000000000") << ends;
}

TEST(ShellWords, AJobThatIsQueuedIsRead) {
  EXPECT_THAT(*shell_words("N=2\nsbatch -N 2 <<EOF\n#!/bin/bash\ncmd $N \"\\$M\"\nEOF\n"),
              ElementsAre("cmd", "2", "$M"));
  EXPECT_THAT(*shell_words("x=$(sbatch --parsable --wrap 'echo no; cmd a')\ncmd $x"),
              ElementsAre("cmd", "a", ";", "cmd", "1"));
  EXPECT_THAT(*shell_words("echo 'cmd $1' > job\nsbatch -J x job 7 | tail -n 1 | xargs cmd"),
              ElementsAre("cmd", "7", ";", "cmd", "Submitted", "batch", "job", "1"));
  // A script that is not here, and an input that another shell reads.
  EXPECT_THAT(*shell_words("bash <<EOF\nsbatch other.slurm\ncmd\nbash\nEOF\n"),
              ElementsAre("sbatch", "other.slurm", ";", "cmd"));
  EXPECT_THAT(*shell_words("sbatch -N 2"), ElementsAre("sbatch", "-N", "2"));
}

TEST(ShellWords, DefaultsStandForWhatIsNotAssigned) {
  EXPECT_EQ(last_word("x=${TP:-4}"), "x=4");
  EXPECT_EQ(last_word("TP=2\nx=${TP:-4}"), "x=2");
  EXPECT_EQ(last_word("TP=\nx=${TP:-4}"), "x=4");
  EXPECT_EQ(last_word("TP=\nx=${TP-4}"), "x=");
  EXPECT_EQ(last_word("x=${P:-\"${R}/verl\"}"), "x=$R/verl");
  EXPECT_EQ(last_word("A=3\nx=${B:-$((A * 2))}"), "x=6");
  EXPECT_EQ(last_word("B=${A:=5}\nx=$A$B"), "x=55");
  EXPECT_EQ(last_word("A=1\nx=${A:+yes}${B:+no}"), "x=yes");
}

TEST(ShellWords, PiecesAndPatternsOfVariables) {
  EXPECT_EQ(last_word("N=/a/run.tar.gz\nx=${N##*/},${N%.gz},${N%%.*},${N#/a}"),
            "x=run.tar.gz,/a/run.tar,/a/run,/run.tar.gz");
  EXPECT_EQ(last_word("N=a-b-c\nx=${N//-/_},${N/-/},${#N},${N:2:1},${N: -1},${N^^},${N^}"),
            "x=a_b_c,ab-c,5,b,c,A-B-C,A-b-c");
  EXPECT_EQ(last_word("A=B\nB=7\nx=${!A}"), "x=7");
  EXPECT_EQ(last_word("x={1..3}"), "x=3");
  EXPECT_THAT(*shell_words("cmd a{1,2}b {x}"), ElementsAre("cmd", "a1b", "a2b", "{x}"));
}

TEST(ShellWords, ArithmeticIsComputed) {
  EXPECT_EQ(last_word("x=$((1024 * 2))"), "x=2048");
  EXPECT_EQ(last_word("a=3\nb=$((a + 1))\nx=$(( (a + b) * 2 - ${a} % $b ))"), "x=11");
  EXPECT_EQ(last_word("a=3\n((a += 2, a++))\nx=$((a > 5 ? a : 0))"), "x=6");
  EXPECT_EQ(last_word("A=$(unknown)\nx=$((A + 1))"), "x=$((A + 1))");
}

TEST(ShellWords, ArgumentsOfTheScriptAreEmpty) {
  EXPECT_THAT(*shell_words("cmd a=1 \"$@\" $@ ${@:2}"), ElementsAre("cmd", "a=1"));
}

TEST(ShellWords, UnquotedVariablesAreSplit) {
  EXPECT_THAT(*shell_words("A='x=1 y=2'\ncmd $A \"$A\""),
              ElementsAre("cmd", "x=1", "y=2", "x=1 y=2"));
}

TEST(ShellWords, WhatAnExpansionGivesAssignsNothing) {
  EXPECT_THAT(*shell_words("A=1\nB='cmd A=2'\n$B x=$A"), ElementsAre("cmd", "A=2", "x=1"));
}

TEST(ShellWords, ArraysGiveTheirWords) {
  EXPECT_THAT(*shell_words("A=(\n x=1 # one\n y='2 3'\n)\nA+=(z=4)\ncmd \"${A[@]}\" w=5"),
              ElementsAre("cmd", "x=1", "y=2 3", "z=4", "w=5"));
  EXPECT_THAT(*shell_words("declare -A M=([a]=1 [b]=2)\nM[c]=3\ncmd ${M[b]} ${#M[@]} ${!M[@]}"),
              ElementsAre("cmd", "2", "3", "a", "b", "c"));
  EXPECT_THAT(*shell_words("A=(1 2 3)\ncmd ${A[-1]} ${A[@]:1} \"${A[*]}\""),
              ElementsAre("cmd", "3", "2", "3", "1 2 3"));
}

TEST(ShellWords, OperatorsEndWordsAndRedirectionsAreLeftOut) {
  EXPECT_THAT(*shell_words("A=1; cmd --flag 2>&1 | tool log && other x=$A > /dev/null &"),
              ElementsAre("cmd", "--flag", ";", "tool", "log", ";", "other", "x=1"));
}

TEST(ShellWords, WhatOnlyAShellKnowsStaysAsWritten) {
  EXPECT_EQ(last_word("cmd name=$(stat -c %s f)"), "name=$(stat -c %s f)");
  EXPECT_THAT(*shell_words("$(which nothing) a=1"), ElementsAre("a=1"));
}

TEST(ShellReading, NamesNoVariableWithoutAName) {
  for (const char* text : {"cmd ${}", "cmd ${:-a}", "cmd ${:?}", "cmd ${##x}", "cmd $(( ${} ))"}) {
    const auto reading = read_shell(text);
    if (!reading.ok()) continue;
    EXPECT_THAT(reading->unset, testing::Not(testing::Contains(""))) << text;
    (void)shell_words(text);
  }
}

// Inputs that a fuzzer found: each ended in a read beside a text.
TEST(ShellReading, EmptyWordsAndNamelessVariablesAreReadAsSuch) {
  for (const char* name : {"empty_words.sh", "nameless.sh"}) {
    std::ifstream file(std::string(BRAID_SOURCE_DIR) + "/fuzz/seeds/shell/" + name);
    std::stringstream text;
    text << file.rdbuf();
    ASSERT_GT(text.str().size(), 100u) << name;
    const auto reading = read_shell(text.str());
    ASSERT_TRUE(reading.ok()) << name << ": " << reading.status().message();
    EXPECT_THAT(reading->unset, testing::Not(testing::Contains(""))) << name;
  }
  EXPECT_TRUE(read_shell("set \"\" errexit").ok());
}

TEST(ShellReading, TakesTheBranchThatIsTaken) {
  EXPECT_EQ(
      value_of("N=1\nif [ \"${B:-fsdp}\" = megatron ]; then N=2; elif test 3 -gt 2; then N=3; "
               "else N=4; fi"),
      "3");
  EXPECT_EQ(value_of("M=qwen3-8b\ncase $M in *32b) N=32;; qwen*|llama*) N=8;; *) N=0;; esac"), "8");
  EXPECT_EQ(value_of("N=1; [[ -n \"$X\" && -z \"$Y\" ]] && N=2"), "1");
  EXPECT_EQ(value_of("N=1; [[ abc == a* ]] && N=2 || N=3"), "2");
  EXPECT_EQ(value_of("N=1; [[ 16 =~ ^[0-9]+$ ]] && N=2"), "2");
  EXPECT_EQ(value_of("N=1; if ! false; then N=2; fi"), "2");
  EXPECT_EQ(value_of("N=1; (N=2); { N=3; }"), "3");
  EXPECT_EQ(value_of("N=1; if ((3 > 2)); then N=5; fi"), "5");
  EXPECT_EQ(value_of("N=a; if command -v no-such-program > /dev/null; then N=b; fi"), "a");
  EXPECT_EQ(value_of("set -e\nN=1\n[ 1 = 2 ] || N=2\nif [ 1 = 2 ]; then N=3; fi"), "2");
}

TEST(ShellReading, RunsThroughLoopsAndFunctions) {
  EXPECT_EQ(value_of("N=0; for i in 1 2 3; do N=$((N + i)); [ $i = 2 ] && break; done"), "3");
  EXPECT_EQ(value_of("N=0; for ((i = 0; i < 4; i++)); do ((N += i)); done"), "6");
  EXPECT_EQ(value_of("N=0; while [ $N -lt 7 ]; do N=$((N + 2)); done"), "8");
  EXPECT_EQ(value_of("N=9; f() { local N=$1; return 3; }; f 1; N=$N$?"), "93");
  EXPECT_EQ(value_of("f() { echo \"got $1\"; }\nN=$(f a | tr a b)"), "got b");
  EXPECT_EQ(
      value_of("set -- --n 4 --m 5; while [ $# -gt 0 ]; do case $1 in --n) N=$2; shift 2;; *) "
               "shift;; esac; done"),
      "4");
  EXPECT_EQ(value_of("N=0; while read -r a b; do N=$b; done <<EOF\nx 1\ny 2\nEOF"), "2");
  EXPECT_EQ(value_of("IFS=, read -ra L <<< 'a,b,c'; N=${#L[@]}"), "3");
  EXPECT_EQ(value_of("N=$(printf '%03d-%s' 7 x; echo)"), "007-x");
  EXPECT_EQ(value_of("cat > f <<EOF\nN=6\nEOF\nsource f"), "6");
  EXPECT_EQ(value_of("A=5; N=$(bash -c 'echo [${A:-}]'); export A; N=$N$(bash -c 'echo [$A]')"),
            "[][5]");
}

TEST(ShellReading, EndsWhereTheScriptEnds) {
  const auto reading = read_shell("cmd 1\nexit 3\ncmd 2");
  ASSERT_TRUE(reading.ok());
  EXPECT_THAT(reading->commands, ElementsAre(Words({"cmd", "1"})));
  EXPECT_EQ(reading->ending, "line 2: exit 3");
  EXPECT_EQ(read_shell("set -e\nfalse\ncmd")->ending, "line 2: `false` fails");
  EXPECT_EQ(read_shell("cmd ${MODEL:?give one}\ncmd")->ending, "line 1: MODEL: give one");
  EXPECT_TRUE(read_shell("f() { f; }; f; cmd")->ending.find("more than is read") !=
              std::string::npos);
}

TEST(ShellReading, SaysWhatItAssumed) {
  EXPECT_THAT(
      assumptions("if [ -f /data/x ]; then cmd; fi"),
      ElementsAre("line 1: `[ -f /data/x ]` is not known without running it; taken as false"));
  EXPECT_THAT(assumptions("N=$(tool)\nif [ \"$N\" -gt 3 ]; then cmd; fi"),
              ElementsAre(HasSubstr("line 2: `[ \"$N\" -gt 3 ]`")));
  EXPECT_THAT(assumptions("case $(tool) in a) cmd;; esac"), ElementsAre(HasSubstr("case $(tool)")));
  EXPECT_THAT(assumptions("while true; do sleep 9; done"),
              ElementsAre(HasSubstr("loop around it")));
  EXPECT_THAT(assumptions("while true; do :; done"), ElementsAre(HasSubstr("left after")));
  EXPECT_THAT(assumptions("source /etc/x"), ElementsAre(HasSubstr("left out")));
  EXPECT_THAT(assumptions("A=1; [ $A = 1 ] && cmd"), ElementsAre());
  EXPECT_THAT(read_shell("cmd a=$NODES")->unset, ElementsAre("NODES"));
  EXPECT_THAT(read_shell("cmd ${NODES:-1}")->unset, ElementsAre());
  EXPECT_THAT(read_shell("cmd n=$((NODES * 8))")->unset, ElementsAre("NODES"));
  EXPECT_THAT(read_shell("cmd \"${B[@]}\"")->unset, ElementsAre("B[@]"));
  EXPECT_THAT(shell_words("cmd \"${B[@]}\"").status().message(),
              HasSubstr("'${B[@]}' is not assigned"));
}

TEST(ShellReading, RefusesWhatIsNoScriptWithItsLine) {
  EXPECT_THAT(read_shell("a\nif x; then y\n").status().message(), HasSubstr("'if' has no 'fi'"));
  EXPECT_THAT(read_shell("a\n)").status().message(), HasSubstr("line 2"));
  std::string many;
  for (int i = 0; i < 20000; ++i) many += "( ";
  EXPECT_THAT(read_shell(many).status().message(), HasSubstr("nested too deeply"));
  EXPECT_FALSE(read_shell("for x in a; do y").ok());
}

TEST(ShellWords, BrokenTextIsReadToItsEnd) {
  for (const char* text : {"'", "\"", "$", "${", "$((", "$(", "`", "\\", "A=(", "x=\"$", "${A[@]"})
    (void)shell_words(text);
  std::string doubled = "A=xxxxxxxx\n";
  for (int i = 0; i < 100; ++i) doubled += "A=$A$A\n";
  EXPECT_LT(last_word(doubled + "x=$A").size(), size_t{1} << 20);
  for (const char* open :
       {"(", "{ ", "$(", "${", "\"$(", "[[ ( ", "$((", "if ", "! ", "a=(", "`"}) {
    std::string many;
    for (int i = 0; i < 20000; ++i) many += open;
    (void)shell_words(many);
    (void)shell_words("cmd " + many);
  }
}

TEST(SlurmVariables, ComeFromTheHeader) {
  const auto job =
      slurm_variables("#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gres=gpu:h100:8\ncmd");
  EXPECT_EQ(job.at("SLURM_NNODES"), "4");
  EXPECT_EQ(job.at("SLURM_GPUS_PER_NODE"), "8");
  EXPECT_EQ(slurm_variables("#SBATCH -N 2\n#SBATCH --gpus-per-node 4").at("SLURM_NNODES"), "2");
  EXPECT_TRUE(slurm_variables("#!/bin/bash\n# SBATCH\ncmd").empty());
}

TEST(ShellArithmetic, KnowsPrecedenceAndRefusesWhatItCannotCompute) {
  const auto value = [](const std::string& text) {
    return shell_arithmetic(text, [](const std::string& name) -> std::optional<std::string> {
      if (name == "n") return "5";
      return std::nullopt;
    });
  };
  EXPECT_EQ(value("1 + 2 * 3 - 8 / 4 % 2"), 7);
  EXPECT_EQ(value("-(n - 7)"), 2);
  for (const char* text : {"", "1 +", "1 / 0", "n m", "m", "1.5", "(1", "9223372036854775807 + 1"})
    EXPECT_EQ(value(text), std::nullopt) << text;
  EXPECT_EQ(value(std::string(10000, '(')), std::nullopt);
}

}  // namespace
}  // namespace braid::inline foreign
