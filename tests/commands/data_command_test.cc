// `braid data`, and bad data as a person meets it: exit code 2 and one line.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <fstream>

#include "base/json.h"
#include "host/testing.h"

namespace braid {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kModel = " tokenizer.path=examples/quickstart/model";

class DataCommand : public CommandTest {};

TEST_F(DataCommand, ShowsTextIdsAndMask) {
  const CommandOutcome shown = run_braid(
      std::string("data data.train=task:sort_digits algorithm.name=sft --show 1 --json") + kModel);
  ASSERT_EQ(shown.exit_code, 0) << shown.output;
  const std::vector<std::string> lines = split(shown.output, '\n');
  const Json record = parse_json(lines[0], "output").value();
  const auto ids = record["ids"].get<std::vector<int>>(),
             mask = record["mask"].get<std::vector<int>>();
  ASSERT_EQ(ids.size(), mask.size());
  const std::string label = record["extra"]["label"];
  EXPECT_EQ(std::count(mask.begin(), mask.end(), 1), static_cast<int64_t>(label.size()) + 1);
  EXPECT_THAT(record["text"].get<std::string>(), HasSubstr("=" + label));
  const Json summary = parse_json(lines[1], "output").value()["summary"];
  EXPECT_EQ(summary["lines"], summary["usable"]);
  EXPECT_GT(summary["response_tokens"]["max"], 0);
}

TEST_F(DataCommand, CountsOverlongLines) {
  const std::string file = write("a.jsonl", "{\"ids\": [1, 2, 3]}\n{\"ids\": [1]}\n");
  const std::string base = "data --show 0 data.max_prompt_length=2 data.train=" + file;
  const CommandOutcome dropped = run_braid(base + " data.overlong=drop");
  EXPECT_THAT(dropped.output, AllOf(HasSubstr("\"dropped\":1"), HasSubstr("\"lines\":2")));
  const CommandOutcome cut = run_braid(base + " data.overlong=truncate_left");
  EXPECT_THAT(cut.output, HasSubstr("\"truncated\":1,\"usable\":2"));
  const CommandOutcome refused = run_braid(base);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.output, HasSubstr(file + ":1: the prompt has 3 tokens"));
}

TEST_F(DataCommand, ADashReadsStandardInput) {
  const CommandOutcome shown =
      run_shell(cat("cd ", BRAID_SOURCE_DIR, " && echo '{\"ids\": [1, 2]}' | ", BRAID_BINARY,
                    " data data.train=- --show 1 2>&1"));
  EXPECT_EQ(shown.exit_code, 0);
  EXPECT_THAT(shown.output, HasSubstr("\"usable\":1"));
}

TEST_F(DataCommand, ShowsWhatRowsOfOthersWereReadAs) {
  const std::string tables = "instruction,input,output\nsort 21,=,12\n";
  const CommandOutcome alpaca = run_braid(
      cat("data algorithm.name=sft --show 1 data.train=", write("a.csv", tables), kModel));
  EXPECT_EQ(alpaca.exit_code, 0) << alpaca.output;
  EXPECT_THAT(alpaca.output, HasSubstr("recognised as instruction + input + output (Alpaca)"));
  const std::string pictures =
      write("b.jsonl", "{\"prompt\": \"1\"}\n{\"prompt\": \"1\", \"images\": [\"a.png\"]}\n");
  const CommandOutcome refused = run_braid(cat("data data.train=", pictures, kModel));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.output, HasSubstr("b.jsonl:2: key 'images' holds pictures"));
  const CommandOutcome ignored =
      run_braid(cat("data 'data.ignore_columns=[images]' data.train=", pictures, kModel));
  EXPECT_THAT(ignored.output, HasSubstr("\"usable\":2"));
}

TEST_F(DataCommand, RowsOfTwoFormsAreNamed) {
  const std::string file = write("a.jsonl", "{\"prompt\": \"1\"}\n\n{\"ids\": [3]}\n");
  EXPECT_THAT(run_braid(cat("data data.train=", file, kModel)).output,
              HasSubstr(cat(file, ":3: the prompt is token ids, that of ", file, ":1 is text")));
}

TEST_F(DataCommand, ReadsParquetOrSaysHow) {
  const CommandOutcome shown = run_braid("data data.train=tests/data/rows/groups.parquet --show 1");
  if (shown.exit_code != 0) {
    EXPECT_THAT(shown.output, HasSubstr("pip install pyarrow"));
    GTEST_SKIP() << "built without Arrow";
  }
  EXPECT_THAT(shown.output, AllOf(HasSubstr("recognised as prompt: 'ids' is token ids"),
                                  HasSubstr("\"usable\":3000")));
}

// The same name, here and in the cache of the hub: what is here wins, what is nowhere is said.
TEST_F(DataCommand, NamesOfTheHubAreLookedUpInItsCache) {
  const std::string snapshot = join_path(folder_, "hub/datasets--org--set/snapshots/abc");
  ASSERT_TRUE(make_folder(snapshot).ok());
  write("hub/datasets--org--set/snapshots/abc/train-0.jsonl", "{\"ids\": [1]}\n");
  const std::string home = "env HF_HOME=" + folder_ + " " BRAID_BINARY " data data.train=";
  const auto run = [&](const std::string& name) {
    return run_shell(cat("cd ", BRAID_SOURCE_DIR, " && ", home, name, " 2>&1"));
  };
  EXPECT_THAT(run("org/set").output, HasSubstr("\"usable\":1"));
  EXPECT_THAT(run("'org/set/train-*.jsonl'").output, HasSubstr("\"usable\":1"));
  const CommandOutcome missing = run("org/other");
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.output, HasSubstr("hf download org/other --repo-type dataset"));
}

// Peak memory of the largest child so far, in KiB.
int64_t peak_of_children_kib() {
  struct rusage usage {};
  EXPECT_EQ(::getrusage(RUSAGE_CHILDREN, &usage), 0);
  return usage.ru_maxrss;
}

// A file of 64 MB needs hardly more memory than one of a few bytes: lines are read when they are
// needed.
TEST_F(DataCommand, LargeFilesStayOnTheDisk) {
  const std::string command = "data --show 2 data.train=";
  ASSERT_EQ(run_braid(command + write("small.jsonl", "{\"ids\": [1]}\n")).exit_code, 0);
  const int64_t small_kib = peak_of_children_kib();
  const std::string path = join_path(folder_, "large.jsonl");
  {
    std::ofstream file(path);
    const std::string line = "{\"ids\": [1, 2, 3], \"note\": \"" + std::string(8000, 'x') + "\"}\n";
    for (int i = 0; i < 8000; ++i) file << line;
  }
  const CommandOutcome shown = run_braid(command + path);
  ASSERT_EQ(shown.exit_code, 0) << shown.output;
  EXPECT_THAT(shown.output, HasSubstr("\"usable\":8000"));
  EXPECT_LT(peak_of_children_kib() - small_kib, 16 * 1024);
}

struct BadData {
  const char* name;
  std::string lines;
  const char* message;
};
void PrintTo(const BadData& bad, std::ostream* out) { *out << bad.name; }

class BadDataFile : public CommandTest, public ::testing::WithParamInterface<BadData> {};

TEST_P(BadDataFile, NamesTheLine) {
  const std::string file =
      join_path(testing::TempDir(), cat("braid-bad-data-", ::getpid(), ".jsonl"));
  ASSERT_TRUE(write_file_atomic(file, GetParam().lines).ok());
  const CommandOutcome outcome = run_braid("data data.train=" + file + kModel);
  EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr(GetParam().message));
  EXPECT_EQ(error_lines(outcome.output), 1);
}
INSTANTIATE_TEST_SUITE_P(
    Cases, BadDataFile,
    ::testing::Values(
        BadData{"syntax", "{\"prompt\": \"sort 1=\"}\n{oops}\n", ".jsonl:2"},
        BadData{"utf8", "{\"prompt\": \"sort 1=\"}\n{\"prompt\": \"\xc3(\"}\n", ".jsonl:2"},
        BadData{"twice", "{\"prompt\": \"1\", \"prompt\": \"2\"}\n", "occurs twice"},
        BadData{"no object", "[1]\n", ".jsonl:1: a line must be a JSON object"},
        BadData{"no id", "{\"ids\": [1, -2]}\n", ".jsonl:1: key 'ids': -2 is no token id"},
        BadData{"no line", "\n \n", ".jsonl: no usable line"},
        BadData{"empty prompt", "{\"ids\": []}\n", ".jsonl:1: the prompt is empty"},
        BadData{"missing", "{\"text\": \"sort 1=\"}\n", ".jsonl:1: missing key 'prompt'"},
        BadData{"no template", "{\"messages\": [{\"role\": \"user\", \"content\": \"1\"}]}\n",
                "messages need a chat template"}),
    [](const auto& info) {
      std::string name = info.param.name;
      for (char& c : name)
        if (c == ' ') c = '_';
      return name;
    });

}  // namespace
}  // namespace braid
