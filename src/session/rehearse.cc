#include "session/rehearse.h"

#include "base/text.h"
#include "device/tensor_memory.h"
#include "passes/rehearsal.h"
#include "samples/call_groups.h"
#include "weights/memory_report.h"

namespace braid::inline session {
namespace {

MemoryKeys keys_of(const Config& config, const Program& program, DeviceId rank) {
  MemoryKeys out;
  out.recomputes = config.train.recompute;
  out.adapters = config.lora.rank > 0;
  out.narrow = config.model.dtype == "bf16";
  for (size_t i = 0; i < program.calls.size(); ++i) {
    const CallPlacement& where = program.calls[i];
    if (program.graph.calls[i].kind != CallKind::kTrainStep) continue;
    if (position_in(where, rank).dp_rank < 0) continue;
    out.recomputes = out.recomputes || where.strategy.recompute == Recompute::kFull;
    out.copies = std::max<int64_t>(out.copies, where.strategy.dp);
    out.shards = out.shards || where.strategy.zero_stage > 0;
  }
  return out;
}

std::string limit_text(const Config& config) {
  const double gib = config.train.memory_limit_gib;
  return gib > 0 ? cat("; train.memory_limit_gib is ", gib) : std::string();
}

// What does not fit on this rank, with who holds its memory.
std::string shortage_text(const StepContext& step, const Shortage& shortage,
                          const Rehearsal& rehearsal) {
  const Result<ModelOptions> options = model_options(step.config);
  MemoryUseOfRank use =
      memory_use(step.models, options.ok() ? held_tensor_bytes(options->device) : 0);
  use.cache = rehearsal.cache_bytes();
  use.activations = rehearsal.activation_bytes();
  const DeviceId self{static_cast<int>(step.rank())};
  const std::vector<std::string> keys =
      keys_that_help(use, keys_of(step.config, step.program, self));
  return cat("before the first step: rank ", step.rank(), " runs out of memory in ", shortage.place,
             " (", shortage.detail, limit_text(step.config), "). It holds ", memory_use_text(use),
             ". What would help most: ", join(keys, ", "),
             ". Where such a case never comes, train.rehearse=false begins without this test");
}

}  // namespace

Status rehearse_step(const StepContext& step, NeedsOfCalls& needs) {
  BRAID_ASSIGN(const ModelOptions options, model_options(step.config));
  if (!step.config.train.rehearse || !free_tensor_bytes(options.device)) return ok_status();
  Rehearsal rehearsal(step.config, step.program, step.models, step.exchange.everyone(), needs);
  const Status ended = guarded([&] { return rehearsal.run(); });
  const Shortage& mine = rehearsal.shortage();
  if (ended.code() == Code::kOutOfMemory)
    return {
        Code::kInfeasible,
        shortage_text(step, mine.place.empty() ? Shortage{rehearsal.at(), ended.message()} : mine,
                      rehearsal)};
  BRAID_TRY(ended.at("before the first step"));
  const std::string text = mine.place.empty() ? "" : shortage_text(step, mine, rehearsal);
  step.models.rest();
  if (step.ranks() == 1) return text.empty() ? ok_status() : Status{Code::kInfeasible, text};
  Communicator* const all = step.exchange.everyone();
  BRAID_ASSIGN(const bool lacks, on_any_rank(!text.empty(), all, "whether memory is short"));
  if (!lacks) return ok_status();
  BRAID_ASSIGN(const auto texts, step.exchange.gather_text(text, "what does not fit"));
  for (const std::string& found : texts) {
    step.talk.note_alike(!found.empty());
    if (!found.empty()) return {Code::kInfeasible, found};
  }
  return ok_status();
}

}  // namespace braid::inline session
