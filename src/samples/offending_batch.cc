#include "samples/offending_batch.h"

#include <cmath>

#include "base/text.h"
#include "device/device_copy.h"
#include "host/file.h"

namespace braid::inline samples {
namespace {

// Numbers of a field as JSON, which has no infinities: those become text.
Json field_json(const at::Tensor& values) {
  Json out = Json::array();
  const at::Tensor cpu = to_host(values).contiguous();
  for (int64_t i = 0; i < cpu.numel(); ++i) {
    const float value = cpu.const_data_ptr<float>()[i];
    out.push_back(std::isfinite(value) ? Json(value) : Json(cat(value)));
  }
  return out;
}

}  // namespace

Result<std::string> write_offending_batch(const std::string& folder, const Call& call,
                                          const RefusedUpdate& update, const SampleStore& store,
                                          bool append) {
  const std::string path = join_path(folder, cat("nonfinite_step_", update.step, ".jsonl"));
  BRAID_TRY(make_folder(folder));
  BRAID_ASSIGN(const TokenLists* prompts, store.tokens("prompt_ids"));
  BRAID_ASSIGN(const TokenLists* responses, store.tokens("response_ids"));
  std::string lines;
  for (const size_t row : update.rows) {
    Json line = {{"step", update.step}, {"minibatch", update.minibatch}, {"call", call.name}};
    line["why"] = update.why;
    line["sample"] = store.sample(row).id.value;
    line["prompt_ids"] = (*prompts)[row];
    line["response_ids"] = (*responses)[row];
    BRAID_ASSIGN(const AlgoBatch batch, store.gather(call.reads, {row}));
    for (const auto& [name, values] : batch.fields) line["fields"][name] = field_json(values);
    lines += line.dump() + "\n";
  }
  BRAID_TRY(append ? append_file(path, lines) : write_file_atomic(path, lines));
  return path;
}

}  // namespace braid::inline samples
