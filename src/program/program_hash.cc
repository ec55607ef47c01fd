// The hash of a program: over a canonical serialization of everything static. Two programs of equal
// hash make every rank do the same with the same samples.
#include <cstdio>
#include <sstream>

#include "base/text.h"
#include "program/expand.h"
#include "program/hand_over.h"
#include "program/op.h"
#include "program/partition.h"
#include "program/program.h"

namespace braid::inline program {
namespace {

// Names are written with their lengths, so that no two values give the same text.
class StaticText {
 public:
  explicit StaticText(const Program& program) : program_(program) { out_.precision(17); }

  // What compile() makes for all ranks alike.
  std::string tables() {
    put("rules", kCompileRules, kPartitionRules, kExpandRules, kRoundsBetweenAgreements);
    write_graph();
    for (const CallPlacement& call : program_.calls) write_call(call);
    for (const ModelShape& model : program_.models) write_model(model);
    for (const WeightCopy& copy : program_.copies) {
      put("copy", copy.role.value, copy.home);
      write_layout(copy.layout);
    }
    for (const Reallocation& each : program_.reallocations) write_reallocation(each);
    for (const Exchange& exchange : program_.exchanges) write_exchange(exchange);
    for (const RankGroup& group : program_.groups) write_devices("group", group.members);
    for (const RoleState& state : program_.states) put("state", state.role.value, state.optimizer);
    for (const FusedCalls& fused : program_.fused) write_fused(fused);
    write_scoring(program_.scoring);
    write_early_update(program_.early_update);
    if (program_.predicts_lengths) put("predicts_lengths");
    if (program_.rewards_together) put("rewards_together");
    if (program_.synced_copy >= 0) put("synced_copy", program_.synced_copy);
    if (program_.staleness > 0) put("staleness", program_.staleness);
    put("ranks", program_.ranks.size());
    return out_.str();
  }
  std::string tables_and_lists() {
    for (const RankProgram& rank : program_.ranks) write_rank(rank);
    return tables();
  }

 private:
  template <typename... Values>
  void put(const char* what, const Values&... values) {
    out_ << what;
    (one(values), ...);
    out_ << "\n";
  }
  template <typename Value>
  void one(const Value& value) {
    if constexpr (std::is_enum_v<Value>) {
      out_ << ' ' << static_cast<int64_t>(value);
    } else {
      out_ << ' ' << value;
    }
  }
  void one(const std::string& text) { out_ << ' ' << text.size() << ':' << text; }
  void one(const Interval& run) { out_ << ' ' << run.begin << '-' << run.end; }
  void one(const std::vector<int64_t>& numbers) {
    out_ << " [";
    for (const int64_t number : numbers) out_ << number << ',';
    out_ << ']';
  }

  void write_devices(const char* what, const std::vector<DeviceId>& devices) {
    std::vector<int64_t> numbers;
    for (const DeviceId device : devices) numbers.push_back(device.value);
    put(what, numbers);
  }

  static std::vector<int64_t> numbers_of(const std::vector<InstructionId>& ids) {
    std::vector<int64_t> out;
    for (const InstructionId id : ids) out.push_back(id.value);
    return out;
  }

  void write_graph() {
    put("graph", program_.graph.name);
    for (const RoleSpec& role : program_.graph.roles)
      put("role", role.role.value, role.scalar_head, role.trained, role.weights_from.value);
    for (const RoleSpec& role : program_.graph.roles)
      if (role.value_head) put("value_head", role.role.value);
    for (const Call& call : program_.graph.calls) {
      put("call", call.name, call.kind, call.role.value, call.function, call.samples_per_prompt,
          call.compares_samples);
      // It decides where calls are, and nothing of a run that another plan continues.
      if (call.by_groups && !program_.calls.empty()) put("by_groups");
      if (call.by_samples && !program_.calls.empty()) put("by_samples");
      if (call.sums_step && !program_.calls.empty()) put("sums_step");
      if (call.kind == CallKind::kFollow) put("every", call.every_steps);
      if (call.steps_ahead > 0) put("ahead", call.steps_ahead);
      if (call.carried_steps > 0) put("carried", call.carried_steps);
      for (const std::string& field : call.reads) put("reads", field);
      for (const Field& field : call.writes)
        put("writes", field.name, field.type, field.shape, field.sizes);
    }
  }

  void write_call(const CallPlacement& call) {
    const Strategy& s = call.strategy;
    write_devices("mesh", call.mesh.devices);
    put("cut", s.dp, s.tp, s.pp, s.cp, s.ep, s.expert_tp, s.interleave, s.stage_layers);
    put("memory", s.sequence_parallel, s.zero_stage, s.zero_ranks, s.recompute);
    put("batches", s.micro_batches, s.micro_tokens, s.in_order, s.schedule, s.kv_budget_tokens,
        s.max_concurrent);
    put("precision", s.precision ? static_cast<int>(*s.precision) : -1);
    put("uses", call.copy, call.samples);
  }

  void write_model(const ModelShape& model) {
    const NumberWidths& w = model.widths;
    put("model", model.role.value, model.layers, model.hidden, model.cached, model.experts,
        model.routes, model.trained_share, static_cast<int>(model.reduction));
    put("widths", w.weight, w.gathered, w.activation, w.cache, w.reduced, w.optimizer,
        w.least_gradient, w.extra_logit);
    for (const TensorKind& kind : model.kinds) write_kind("kind", kind);
    for (const TensorKind& kind : model.changed) write_kind("changed", kind);
  }

  void write_kind(const char* what, const TensorKind& kind) {
    put(what, kind.name, kind.elements, kind.units, kind.layer_begin, kind.layer_end, kind.first,
        kind.last, kind.routed, kind.partial);
  }

  void write_layout(const ParamLayout& layout) {
    write_devices("layout", layout.mesh.devices);
    put("grid", layout.dp, layout.tp, layout.pp, layout.interleave, layout.sharded, layout.shards,
        layout.ep, layout.expert_tp, layout.stage_layers);
  }

  void write_reallocation(const Reallocation& reallocation) {
    put("reallocation", reallocation.copy);
    write_devices("members", reallocation.members);
    for (const Message& message : reallocation.messages) {
      put("message", message.from.value, message.to.value, message.slot, message.depth,
          message.lane, message.bytes);
      for (const MessagePart& part : message.parts) put("part", part.item, part.layers, part.units);
    }
  }

  void write_exchange(const Exchange& exchange) {
    put("exchange", exchange.producer.value, exchange.consumer.value);
    if (exchange.part != SamplePart::kAll) put("part", exchange.part);
    for (const std::string& field : exchange.fields) put("field", field);
    write_devices("among", exchange.members);
  }

  void write_rank(const RankProgram& rank) {
    put("rank");
    for (const Instruction& i : rank.instructions) {
      put("do", i.kind, i.call.value, i.exit, i.detail, numbers_of(i.after));
      if (i.layers.size() > 0) put("layers", i.layers);
      if (!i.within.empty()) put("within", numbers_of(i.within));
      if (i.part != SamplePart::kAll) put("part", i.part);
    }
  }

  void write_scoring(const FusedScoring& scoring) {
    if (!scoring.is_on()) return;
    put("scoring", scoring.generate.value, scoring.below, scoring.most, scoring.cache,
        kRoundsBetweenTallies);
    for (const int64_t again : scoring.again) put("again", again);
    if (scoring.prefixes) put("prefixes");
    if (scoring.pre_copy > 0) put("pre_copy", scoring.pre_copy);
    if (scoring.streamed.is_on())
      put("streamed", scoring.streamed.update.value, scoring.streamed.reward.value,
          scoring.streamed.advantages.value);
    for (const CallId scorer : scoring.scorers) put("scorer", scorer.value);
  }

  void write_early_update(const EarlyUpdate& early) {
    if (!early.is_on()) return;
    put("early_update", early.update.value, early.minibatches, early.parts);
    for (const CallId scorer : early.scorers) put("scorer", scorer.value);
  }

  void write_fused(const FusedCalls& fused) {
    put("fused", fused.calls[0].value, fused.calls[1].value);
    put("where", std::vector<int64_t>(fused.nodes.begin(), fused.nodes.end()));
    for (const auto& pipelines : fused.pipelines)
      put("pipelines", std::vector<int64_t>(pipelines.begin(), pipelines.end()));
    for (const auto& node : fused.order) {
      put("node");
      for (const PipelineOp& op : node) put("pass", op.pipeline, op.micro_batch, op.stage, op.kind);
    }
  }

  const Program& program_;
  std::ostringstream out_;
};

// FNV-1a (Fowler, Noll, Vo), 64 bits.
std::string hash_of(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

}  // namespace

std::string program_hash(const Program& program) {
  return hash_of(StaticText(program).tables_and_lists());
}

std::string plan_hash(const Program& program, const std::string& plan) {
  return hash_of(cat(StaticText(program).tables(), plan));
}

}  // namespace braid::inline program
