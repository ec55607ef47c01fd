#include "calibrate/measurement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "pricing/efficiency.h"

namespace braid::inline calibrate {
namespace {

using testing::HasSubstr;

const std::vector<std::string>& columns() {
  static const std::vector<std::string> names = split(
      "id,kind,phase,model,critic_model,gpu,n_gpus,gpus_per_node,internode_gbps_per_gpu,precision,"
      "kv_precision,dp,tp,pp,vpp,cp,ep,zero_stage,recompute,tuning,micro_batch,global_batch,"
      "mini_batch,seq_len,prompt_len,output_len,max_output_len,concurrency,requests,engine,"
      "collective,coll_algo,bytes,algorithm,placement,gen_tp,train_gpus,rollout_gpus,prompts,"
      "samples_per_prompt,staleness,metric,value,flop_convention,approx,group,note,source",
      ',');
  return names;
}

using Cells = std::map<std::string, std::string>;

std::string line_of(const std::vector<std::string>& names, const Cells& cells) {
  std::vector<std::string> out;
  for (const std::string& name : names)
    out.push_back(cells.count(name) ? cells.at(name) : std::string());
  return join(out, ",");
}

std::string file_of(const std::vector<Cells>& rows, std::vector<std::string> names = columns()) {
  std::string text = join(names, ",") + "\n";
  for (const Cells& cells : rows) text += line_of(names, cells) + "\n";
  return text;
}

Cells train_cells() {
  return {{"id", "a"},           {"kind", "train_step"}, {"model", "llama3-8b"},
          {"gpu", "h100-80g"},   {"n_gpus", "8"},        {"metric", "seconds_per_step"},
          {"seq_len", "4096.5"}, {"value", "1.25"},      {"approx", "true"}};
}

std::string failure(const Cells& changed) {
  Cells cells = train_cells();
  for (const auto& [name, value] : changed) cells[name] = value;
  const auto rows = parse_measurements(file_of({train_cells(), cells}), "m.csv");
  EXPECT_EQ(rows.status().code(), Code::kInvalidInput);
  return rows.status().message();
}

TEST(Measurement, ReadsCellsAndKeepsEmptyOnesAbsent) {
  const auto rows = parse_measurements(file_of({train_cells()}), "m.csv");
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  const Measurement& row = rows->front();
  EXPECT_EQ(row.line, 2);
  EXPECT_EQ(row.kind, MeasurementKind::kTrainStep);
  EXPECT_EQ(row.metric, MeasuredQuantity::kSecondsPerStep);
  EXPECT_EQ(row.n_gpus, 8);
  EXPECT_EQ(row.seq_len, 4096.5);
  EXPECT_EQ(row.value, 1.25);
  EXPECT_TRUE(row.approx);
  EXPECT_FALSE(row.is_memory);
  EXPECT_FALSE(row.tp || row.micro_batch || row.peak_memory_gib);
}

TEST(Measurement, WholeNumbersMayHaveZeroDecimals) {
  Cells cells = train_cells();
  cells["n_gpus"] = "16.0";
  EXPECT_EQ(parse_measurements(file_of({cells}), "m.csv")->front().n_gpus, 16);
  for (const char* wrong : {"16.", "16.5", ".0", "1e1"})
    EXPECT_THAT(failure({{"n_gpus", wrong}}), HasSubstr("column 'n_gpus' must be a whole number"));
}

TEST(Measurement, MemoryFileIsRecognised) {
  std::vector<std::string> names = columns();
  for (const char* more : {"peak_memory_gib", "memory_kind", "optimizer", "offload"})
    names.push_back(more);
  Cells cells = train_cells();
  cells["metric"] = cells["value"] = "";
  cells["peak_memory_gib"] = "61.5";
  cells["memory_kind"] = "reserved";
  cells["offload"] = "optimizer";
  const auto rows = parse_measurements(file_of({cells}, names), "m.csv");
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  EXPECT_TRUE(rows->front().is_memory);
  EXPECT_EQ(rows->front().peak_memory_gib, 61.5);
  EXPECT_EQ(rows->front().memory_kind, "reserved");
  cells["memory_kind"] = "most";
  const auto unknown = parse_measurements(file_of({cells}, names), "m.csv");
  ASSERT_TRUE(unknown.ok());
  EXPECT_THAT(check_words(unknown->front()).message(),
              HasSubstr("memory_kind 'most' is none of: allocated reserved"));
  cells["memory_kind"] = "";
  EXPECT_THAT(parse_measurements(file_of({cells}, names), "m.csv").status().message(),
              HasSubstr("m.csv:2: column 'memory_kind' must be one of: allocated reserved"));
}

TEST(Measurement, ErrorsNameLineColumnAndRule) {
  EXPECT_EQ(failure({{"value", "nan"}}),
            "m.csv:3: column 'value' must be a finite number above 0 or empty, is 'nan'");
  EXPECT_THAT(failure({{"value", "-1"}}), HasSubstr("m.csv:3: column 'value'"));
  EXPECT_THAT(failure({{"seq_len", "1e999"}}), HasSubstr("m.csv:3: column 'seq_len'"));
  EXPECT_THAT(failure({{"tp", "2.5"}}), HasSubstr("m.csv:3: column 'tp' must be a whole number"));
  EXPECT_THAT(failure({{"n_gpus", "0"}}), HasSubstr("from 1"));
  EXPECT_EQ(failure({{"zero_stage", "4"}}),
            "m.csv:3: column 'zero_stage' must be a whole number from 0 to 3 or empty, is '4'");
  EXPECT_THAT(failure({{"kind", "train"}}), HasSubstr("must be train_step, generate"));
  EXPECT_THAT(failure({{"metric", "seconds"}}), HasSubstr("must be seconds_per_step"));
  EXPECT_THAT(failure({{"metric", ""}}), HasSubstr("column 'metric'"));
  EXPECT_EQ(failure({{"precision", "BF 16"}}),
            "m.csv:3: column 'precision' must be one of: bf16 fp16 fp8 fp4 f32, is 'BF 16'");
  EXPECT_THAT(failure({{"approx", "yes"}}), HasSubstr("must be true or false"));
  EXPECT_EQ(failure({}), "m.csv:3: id 'a' is there twice");
}

TEST(Measurement, UnknownWordsAreKeptAndNamed) {
  const std::map<std::string, std::string> expected = {
      {"phase", "phase 'decod_step' is none of: total generate"},
      {"precision", "precision 'int3' is none of: bf16 fp16 fp8 fp4 f32"},
      {"kv_precision", "kv_precision 'bf61' is none of: bf16 fp16 fp8 fp4 f32 (did you mean"},
      {"recompute", "recompute 'block' is none of: none selective full unknown"},
      {"tuning", "tuning 'qlora' is none of: full lora (did you mean 'lora'?)"},
      {"collective", "collective 'all_gathr' is none of: all_reduce all_gather"},
      {"coll_algo", "coll_algo 'tree' is none of: ring nvls"},
      {"algorithm", "algorithm 'pppo' is none of: ppo grpo dapo (did you mean 'ppo'?)"},
      {"placement", "placement 'two_step_off' is none of: colocated split one_step_off async"}};
  for (const auto& [column, reason] : expected) {
    Cells cells = train_cells();
    const size_t begin = reason.find('\'') + 1;
    cells[column] = reason.substr(begin, reason.find('\'', begin) - begin);
    const auto rows = parse_measurements(file_of({cells}), "m.csv");
    ASSERT_TRUE(rows.ok()) << rows.status().message();
    EXPECT_THAT(check_words(rows->front()).message(), testing::StartsWith(reason));
    EXPECT_TRUE(check_words(parse_measurements(file_of({train_cells()}), "m.csv")->front()).ok());
  }
}

TEST(Measurement, MissingColumnsAndEmptyTables) {
  std::vector<std::string> names = columns();
  names[3] = "modell";
  EXPECT_THAT(parse_measurements(file_of({train_cells()}, names), "m.csv").status().message(),
              HasSubstr("m.csv:1: missing column 'model' (did you mean 'modell'?)"));
  EXPECT_EQ(parse_measurements(file_of({}), "m.csv").status().message(),
            "m.csv:1: no rows below the header");
}

TEST(Measurement, ConfigurationIsTheRowWithoutItsResult) {
  const auto row = [](const Cells& changed) {
    Cells cells = train_cells();
    for (const auto& [name, value] : changed) cells[name] = value;
    return parse_measurements(file_of({cells}), "m.csv")->front();
  };
  const std::string key = configuration_key(row({}));
  for (const char* name : {"value", "engine", "note", "id", "group", "approx"})
    EXPECT_EQ(configuration_key(row({{name, name == std::string("value") ? "9" : "true"}})), key)
        << name;
  for (const char* name : {"tp", "seq_len", "n_gpus", "global_batch"})
    EXPECT_NE(configuration_key(row({{name, "64"}})), key) << name;
}

TEST(Measurement, EngineFamilyDropsTheRelease) {
  EXPECT_EQ(engine_family("megatron-bridge-26.02.01"), "megatron-bridge");
  EXPECT_EQ(engine_family("llm-foundry"), "llm-foundry");
  EXPECT_EQ(engine_family("vllm-"), "vllm-");
  EXPECT_EQ(engine_family(""), "");
}

}  // namespace
}  // namespace braid::inline calibrate
