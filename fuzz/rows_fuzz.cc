// Rows of data: CSV, a JSON array or JSON lines, each read for every need.
#include "data/csv_rows.h"
#include "data/json_array.h"
#include "data/plain_row.h"
#include "data/record.h"

namespace {

braid::Status read_row(std::string_view line) {
  using braid::DataNeed;
  BRAID_ASSIGN(const braid::OrderedJson row, braid::parse_ordered_json(line, "fuzz.jsonl"));
  braid::DataConfig named;
  named.prompt_key = "question", named.label_key = "extra_info.answer";
  for (const DataNeed need : {DataNeed::kPrompts, DataNeed::kSamples, DataNeed::kPairs})
    for (const braid::DataConfig& config : {braid::DataConfig(), named}) {
      (void)braid::make_record(row, need, nullptr, config);
      const auto plain = braid::plain_row(row, need, config);
      if (plain.ok()) (void)plain->description();
    }
  return braid::ok_status();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)braid::for_each_array_element(text, read_row);
  (void)braid::for_each_csv_row(text, ',', read_row);
  (void)read_row(text);
  return 0;
}
