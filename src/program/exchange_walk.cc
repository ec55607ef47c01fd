#include "program/exchange_walk.h"

#include "base/text.h"
#include "program/early_update.h"
#include "program/scored_prefixes.h"

namespace braid::inline program {

const Field& field_of(const Graph& graph, const std::string& name) {
  for (const Call& call : graph.calls)
    for (const Field& field : call.writes)
      if (field.name == name) return field;
  BRAID_CHECK(false, "no call writes field " + name);
}

std::vector<Field> fields_of(const Graph& graph, const Exchange& exchange) {
  std::vector<Field> out;
  for (const std::string& name : exchange.fields)
    out.push_back(name == kBegunIds ? begun_field() : field_of(graph, name));
  return out;
}

ExchangeWalk::ExchangeWalk(const Program& program, RowsByRank& rows, FieldHoldings& holdings,
                           NumbersOf numbers, std::optional<int64_t> steps_ahead)
    : program_(program),
      rows_(rows),
      holdings_(holdings),
      numbers_(std::move(numbers)),
      steps_ahead_(steps_ahead) {}

void ExchangeWalk::begin() {
  next_ = 0;
  written_.clear();
}

bool ExchangeWalk::follows(const Exchange& exchange) const {
  return !steps_ahead_ ||
         program_.graph.calls[exchange.samples_of().value].steps_ahead == *steps_ahead_;
}

bool ExchangeWalk::note_written(CallId id, int64_t step, SamplePart part) {
  const Call& call = program_.graph.calls[id.value];
  if (call.kind == CallKind::kFetch || call.kind == CallKind::kSelect ||
      (steps_ahead_ && call.steps_ahead != *steps_ahead_) || !written_.insert({id, part}).second)
    return false;
  const std::vector<SampleRows> rows = rows_.written_by_rank(id, step, part);
  for (const Field& field : call.writes) holdings_.note(field.name, rows, rows_.samples());
  // What the generation goes on with is where it has it then.
  if (program_.scoring.prefixes && id == program_.scoring.generate && part == begun_part(program_))
    holdings_.note(kBegunIds, rows_.written_by_rank(id, step, parts_of_call(program_, id).back()),
                   rows_.samples());
  return true;
}

void ExchangeWalk::come_to(int32_t entry, int64_t step) {
  while (next_ < entry) {
    const Exchange& before = program_.exchanges[next_];
    if (!follows(before)) {
      pass(next_);
      continue;
    }
    BRAID_CHECK(!before.shared(), "all ranks take part in every share");
    make(next_, step);
  }
}

ExchangeWalk::Moves ExchangeWalk::make(int32_t entry, int64_t step) {
  pass(entry);
  return moves_in(program_.exchanges[entry], step, &holdings_);
}

ExchangeWalk::Moves ExchangeWalk::listed(int32_t entry, int64_t step) {
  const Exchange& exchange = program_.exchanges[entry];
  note_given(exchange, step);
  FieldHoldings holdings = holdings_;
  return moves_in(exchange, step, &holdings);
}

void ExchangeWalk::note_given(const Exchange& exchange, int64_t step) {
  for (const SamplePart part : parts_given(program_, exchange))
    note_written(exchange.producer, step, part);
}

ExchangeWalk::Moves ExchangeWalk::moves_in(const Exchange& exchange, int64_t step,
                                           FieldHoldings* holdings) {
  note_given(exchange, step);
  const auto needed = rows_.read_by_rank(exchange.consumer, step, exchange.part);
  Moves out;
  out.fields = numbers_(fields_of(program_.graph, exchange));
  out.moves = holdings->bring(out.fields, needed, exchange.members);
  return out;
}

}  // namespace braid::inline program
