#include "runtime/run_data.h"

#include "base/text.h"
#include "host/file.h"

namespace braid {

DataNeed data_need(const Graph& graph) {
  for (const Call& call : graph.calls) {
    if (call.kind != CallKind::kFetch) continue;
    if (call.function == "samples") return DataNeed::kSamples;
    if (call.function == "pairs") return DataNeed::kPairs;
  }
  return DataNeed::kPrompts;
}

Result<RunData> load_run_data(const Config& config, const std::string& source, DataNeed need) {
  RunData out;
  const std::string folder =
      config.tokenizer.path.empty() ? config.model.path : config.tokenizer.path;
  const std::string file = is_folder(folder) ? join_path(folder, "tokenizer.json") : folder;
  if (!folder.empty() && path_exists(file)) {
    BRAID_ASSIGN(out.tokenizer, load_tokenizer(folder));
  } else if (!config.tokenizer.path.empty()) {
    return not_found(cat("tokenizer.path: ", file, " does not exist"));
  }
  const Tokenizer* tokenizer = out.tokenizer ? &*out.tokenizer : nullptr;
  BRAID_ASSIGN(out.data, load_data_set(source, need, tokenizer, config.data));
  return out;
}

}  // namespace braid
