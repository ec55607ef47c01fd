// braid data: what the model will see of a configuration's data.
#include <algorithm>
#include <cstdio>

#include "base/json.h"
#include "base/text.h"
#include "braid/commands.h"
#include "braid/data/inputs.h"
#include "inputs/run_data.h"

namespace braid {
namespace {

struct DataArguments {
  int64_t show = 3;
  bool json = false;
  bool eval = false;
};

Json lengths_json(const DataLengths& lengths, int64_t lines) {
  const double mean = static_cast<double>(lengths.total) / static_cast<double>(lines);
  return {{"min", lengths.least}, {"mean", mean}, {"max", lengths.most}};
}

Json summary_json(const DataSet& data) {
  Json out = {{"lines", data.lines()},
              {"recognised", data.description()},
              {"usable", data.size()},
              {"dropped", data.dropped()},
              {"truncated", data.truncated()},
              {"prompt_tokens", lengths_json(data.prompt_lengths(), data.size())}};
  if (data.unwanted() > 0) out["left_out_as_bad"] = data.unwanted();
  Json formats = Json::object();
  for (int i = 0; i < kRowFormats; ++i)
    if (const auto format = static_cast<RowFormat>(i); data.rows_of(format) > 0)
      formats[row_format_name(format)] = data.rows_of(format);
  out["formats"] = formats;
  if (data.response_lengths().most > 0)
    out["response_tokens"] = lengths_json(data.response_lengths(), data.size());
  if (data.rejected_lengths().most > 0)
    out["rejected_tokens"] = lengths_json(data.rejected_lengths(), data.size());
  return out;
}

// A sequence as the model sees it; the mask is 1 where training learns (or generation writes), and
// `learned` says which tokens of the response that is, all where it is empty.
Result<OrderedJson> sequence_json(const RunData& run, const DataRecord& record,
                                  const std::vector<int32_t>& response,
                                  const std::vector<uint8_t>& learned) {
  std::vector<int32_t> ids = record.prompt_ids;
  ids.insert(ids.end(), response.begin(), response.end());
  std::vector<int> mask(record.prompt_ids.size(), 0);
  mask.insert(mask.end(), learned.begin(), learned.end());
  mask.resize(ids.size(), 1);
  OrderedJson out;
  if (run.tokenizer) {
    BRAID_ASSIGN(out["text"], run.tokenizer->decode(ids, false));
  }
  out["ids"] = ids;
  out["mask"] = mask;
  return out;
}

Result<OrderedJson> record_json(const RunData& run, int64_t position) {
  BRAID_ASSIGN(const DataRecord record, run.data.at(position));
  BRAID_ASSIGN(OrderedJson out, sequence_json(run, record, record.response_ids, record.learned));
  if (!record.rejected_ids.empty()) {
    BRAID_ASSIGN(out["rejected"], sequence_json(run, record, record.rejected_ids, {}));
  }
  out["position"] = position;
  out["extra"] = record.extra;
  return out;
}

std::string dumped(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

void print_record(const OrderedJson& record) {
  std::printf("-- position %s\n", record["position"].dump().c_str());
  for (const auto& [key, value] : record.items())
    if (key != "position") std::printf("%-9s %s\n", key.c_str(), dumped(value).c_str());
}

Status show_data(const DataArguments& arguments, const std::vector<std::string>& inputs) {
  BRAID_ASSIGN(const LoadedConfig loaded, load_config_arguments(inputs));
  BRAID_ASSIGN(const Config config, local_config(loaded.config));
  BRAID_ASSIGN(const Graph graph, make_graph(config.algorithm));
  const DataConfig& data = config.data;
  const std::string& source = arguments.eval ? data.eval : data.train;
  BRAID_ASSIGN(
      const RunData run,
      load_run_data(config, source, arguments.eval ? DataNeed::kPrompts : data_need(graph)));
  if (!arguments.json) std::printf("recognised as %s\n", run.data.description().c_str());
  for (int64_t position = 0; position < std::min(arguments.show, run.data.size()); ++position) {
    BRAID_ASSIGN(const OrderedJson record, record_json(run, position));
    if (arguments.json)
      std::printf("%s\n", dumped(record).c_str());
    else
      print_record(record);
  }
  std::printf("%s\n", Json{{"summary", summary_json(run.data)}}.dump().c_str());
  return ok_status();
}

Action define_data(CLI::App& app) {
  auto arguments = std::make_shared<DataArguments>();
  take_config_inputs(app);
  app.add_option("--show", arguments->show, "records to print, in the order of training")
      ->check(CLI::Range(0, 1'000'000'000));
  app.add_flag("--json", arguments->json, "one JSON object per line");
  app.add_flag("--eval", arguments->eval, "data.eval instead of data.train");
  return [arguments, &app] { return show_data(*arguments, app.remaining()); };
}

}  // namespace

extern const Command kDataCommand{"data", "show the data as the model will see it (docs/data.md)",
                                  define_data};

}  // namespace braid
