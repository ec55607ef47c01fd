// What each rank of a job reads of a step's samples, against one process that reads all of it.
#include "samples/fetch_samples.h"

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "samples/call_rows.h"

namespace braid::inline samples {
namespace {

using testing::HasSubstr;

constexpr int64_t kStepPrompts = 6, kJobRanks = 4, kFirst = 3;

// Prompts of 1 to 3 tokens, each of two neighbours equal, and responses of as many as their line.
std::string data_lines(const std::string& algorithm) {
  std::string out;
  for (int i = 0; i < 12; ++i) {
    Json row = {{"ids", std::vector<int>(1 + i / 2 % 3, i / 2)}, {"source", cat("line ", i)}};
    const std::vector<int> response(1 + i, i), other(2 + i, 50 + i);
    if (algorithm == "sft") row["response"] = response;
    if (algorithm == "dpo") row["chosen"] = response, row["rejected"] = other;
    if (algorithm == "kto") row["completion"] = response, row["label"] = i % 3 == 0;
    out += row.dump() + "\n";
  }
  return out;
}

struct ReadingJob {
  Graph graph;
  DataSet data;
  RolloutConfig options;

  explicit ReadingJob(const std::string& algorithm, const std::string& text = "") {
    AlgorithmOptions named;
    named.name = algorithm;
    graph = *make_graph(named);
    auto made = make_data_set(
        RowFiles::of(LineReader::of_text(text.empty() ? data_lines(algorithm) : text, "f.jsonl")),
        data_need(graph), nullptr, DataConfig());
    EXPECT_TRUE(made.ok()) << made.status().message();
    data = std::move(made).value();
    options.prompts_per_step = kStepPrompts;
    options.samples_per_prompt = 2;
  }

  // The readers of so many ranks and their stores, at the begin of a step.
  struct Rank {
    std::unique_ptr<SampleReader> reader;
    SampleStore store;
  };
  std::vector<Rank> begin(int64_t ranks) const {
    std::vector<Rank> out;
    std::vector<std::vector<int32_t>> told;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      out.push_back(
          {std::make_unique<SampleReader>(graph, data, options, rank, ranks), SampleStore(graph)});
      const auto share = out.back().reader->read_share(kFirst, options.prompts_per_step);
      EXPECT_TRUE(share.ok()) << share.status().message();
      told.push_back(*share);
    }
    for (Rank& rank : out) {
      const Status begun = rank.reader->begin(kFirst, told, rank.store);
      EXPECT_TRUE(begun.ok()) << begun.message();
    }
    return out;
  }
};

// The rows that are here are those of `whole`, and what is not here is as long.
void expect_same_samples(const SampleStore& part, const SampleStore& whole) {
  ASSERT_EQ(part.size(), whole.size());
  EXPECT_EQ(part.token_fields(), whole.token_fields());
  EXPECT_EQ(part.real_fields(), whole.real_fields());
  EXPECT_EQ(part.prompt_lens(), whole.prompt_lens());
  EXPECT_EQ(part.response_lens(), whole.response_lens());
  EXPECT_EQ(part.counts("mismatched_lens"), whole.counts("mismatched_lens"));
  for (const size_t row : whole.all_rows()) {
    const StoredSample &a = part.sample(row), &b = whole.sample(row);
    EXPECT_EQ(a.id, b.id);
    EXPECT_EQ(a.group, b.group);
    if (!a.here) continue;
    EXPECT_EQ(sample_json(a), sample_json(b));
    for (const std::string& field : whole.token_fields())
      EXPECT_EQ((**part.tokens(field))[row], (**whole.tokens(field))[row]) << field;
    for (const std::string& field : whole.real_fields())
      EXPECT_TRUE(at::equal(*part.reals(field, {row}), *whole.reals(field, {row}))) << field;
  }
}

class FetchSamples : public testing::TestWithParam<std::string> {};

TEST_P(FetchSamples, ARankReadsItsShareAndWhatACallNeeds) {
  const ReadingJob job(GetParam());
  const SampleStore whole = std::move(job.begin(1).front().store);
  const int64_t beside = GetParam() == "kto" ? 2 : 0;  // whose responses a share is compared with
  int64_t read = 0;
  for (ReadingJob::Rank& rank : job.begin(kJobRanks)) {
    expect_same_samples(rank.store, whole);
    EXPECT_GE(rank.reader->records_read(), kStepPrompts / kJobRanks);
    EXPECT_LE(rank.reader->records_read(), kStepPrompts / kJobRanks + 1 + beside);
    read += rank.reader->records_read();
    // Rows that other ranks have read: once, with the others of their prompt.
    rank.reader->begin_step();
    for (int again = 0; again < 2; ++again)
      ASSERT_TRUE(rank.reader->read({0, whole.size() - 1}, rank.store).ok());
    EXPECT_TRUE(rank.store.sample(0).here && rank.store.sample(whole.size() - 1).here);
    EXPECT_LE(rank.reader->records_read(), 2 + beside);
    expect_same_samples(rank.store, whole);
    ASSERT_TRUE(rank.reader->read(whole.all_rows(), rank.store).ok());
    for (const size_t row : whole.all_rows()) EXPECT_TRUE(rank.store.sample(row).here);
    expect_same_samples(rank.store, whole);
  }
  EXPECT_LE(read, kStepPrompts + kJobRanks * beside);
  EXPECT_GE(read, kStepPrompts);
}

// Rows have other numbers once some were dropped, and a rank may have no share.
TEST_P(FetchSamples, RowsAreFoundAfterOthersWereDropped) {
  const ReadingJob job(GetParam());
  SampleStore whole = std::move(job.begin(1).front().store);
  std::vector<bool> kept(whole.size(), true);
  kept[0] = kept[3] = false;
  whole.retain(kept);
  for (ReadingJob::Rank& rank : job.begin(2 * kStepPrompts)) {
    rank.store.retain(kept);
    ASSERT_TRUE(rank.reader->read({1, 2}, rank.store).ok());
    EXPECT_TRUE(rank.store.sample(1).here && rank.store.sample(2).here);
    expect_same_samples(rank.store, whole);
  }
}

INSTANTIATE_TEST_SUITE_P(Of, FetchSamples, testing::Values("grpo", "sft", "dpo", "kto"),
                         [](const auto& of) { return of.param; });

// Which samples are where depends on lengths alone, which all ranks know.
TEST(FetchedSamples, AllRanksPartitionAlike) {
  const ReadingJob job("sft");
  Config config;
  config.train.minibatches = 2;
  config.train.micro_tokens = 16;
  const Program program = *compile(job.graph);
  const CallId update{static_cast<int32_t>(job.graph.calls.size()) - 1};
  const std::vector<ReadingJob::Rank> alone = job.begin(1);
  CallRows expected(config, program, alone.front().store);
  for (const ReadingJob::Rank& rank : job.begin(kJobRanks)) {
    CallRows rows(config, program, rank.store);
    EXPECT_EQ(rows.partition(update, 0), expected.partition(update, 0));
  }
}

// One rank alone finds it.
TEST(FetchedSamples, ABadRowIsNamedByWhoReadsIt) {
  const std::string path = cat(testing::TempDir(), "/fetch-samples-", ::getpid(), ".jsonl");
  const std::string text = data_lines("sft");
  std::ofstream(path) << text;
  DataConfig in_order;
  in_order.shuffle = false;
  const ReadingJob job("sft");
  auto data = load_data_set(path, data_need(job.graph), nullptr, in_order);
  ASSERT_TRUE(data.ok()) << data.status().message();
  std::string changed = text;
  changed.replace(text.find("line 5"), 6, "LINE 5");
  std::ofstream(path) << changed;
  for (int64_t rank = 0; rank < kJobRanks; ++rank) {
    SampleReader reader(job.graph, *data, job.options, rank, kJobRanks);
    const auto share = reader.read_share(kFirst, job.options.prompts_per_step);  // of lines 3 to 8
    EXPECT_EQ(share.ok(), rank != 1);
    if (!share.ok()) {
      EXPECT_THAT(share.status().message(), HasSubstr(cat(path, ":6: ")));
    }
  }
  std::filesystem::remove(path);
}

TEST(FetchedSamples, WhatRanksToldMustBeOfAllRecords) {
  const ReadingJob job("grpo");
  SampleStore store(job.graph);
  SampleReader reader(job.graph, job.data, job.options, 0, 2);
  const std::vector<int32_t> half = *reader.read_share(kFirst, job.options.prompts_per_step);
  EXPECT_THAT(reader.begin(kFirst, {half, {half.begin() + 1, half.end()}}, store).message(),
              HasSubstr("the data: damaged"));
}

}  // namespace
}  // namespace braid::inline samples
