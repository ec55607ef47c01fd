#include "emulate/emulated_fields.h"

#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/rng.h"
#include "base/text.h"
#include "comm/transfer_audit.h"
#include "program/scored_prefixes.h"
#include "samples/listed_counts.h"

namespace braid::inline emulate {
namespace {

// Samples of which nothing is known but the lengths.
SampleStore store_of(const Graph& graph, const StepPrices& prices) {
  const SampleLengths& lengths = prices.lengths();
  SampleStore out(graph);
  out.begin(std::vector<StoredSample>(lengths.prompt.size()));
  out.set_counts(kBegunLens, prices.begun_lens());
  for (const Call& call : graph.calls)
    for (const Field& field : call.writes)
      if (!field.sizes.empty()) out.set_counts(field.sizes, numbers_of(field, lengths));
  return out;
}

int64_t count_of(const TransferCounts& counts) {
  int64_t out = 0;
  for (const auto& [kind, count] : counts) out += count;
  return out;
}

}  // namespace

EmulatedFields::EmulatedFields(const Program& program, const StepPrices& prices,
                               Communicator& everyone, int64_t steps_ahead, Misplaced misplaced)
    : program_(program),
      prices_(prices),
      steps_ahead_(steps_ahead),
      misplaced_(std::move(misplaced)),
      rows_(prices),
      store_(store_of(program.graph, prices)),
      exchange_(&everyone, store_, this),
      account_(program, rows_, exchange_, steps_ahead) {
  begin();
}

// What was made in an earlier step is there, where it was made.
void EmulatedFields::begin() {
  account_.begin();
  for (size_t i = 0; i < program_.graph.calls.size(); ++i) {
    const Call& call = program_.graph.calls[i];
    if (call.kind == CallKind::kFetch || call.steps_ahead <= steps_ahead_) continue;
    const auto rows = prices_.written_rows(CallId{static_cast<int32_t>(i)}, SamplePart::kAll);
    for (const Field& field : call.writes)
      exchange_.holdings().note(field.name, rows, store_.size());
  }
}

// A fetch tells words of its own (tell_fetched()); a compute call shares no field: its ranks
// say whether they have failed, and sums where it needs those of the step.
bool EmulatedFields::sends_values(const Exchange& shared) const {
  const Call& call = program_.graph.calls[shared.producer.value];
  return call.kind != CallKind::kFetch &&
         (call.kind != CallKind::kCompute || words_beside(call) > 0);
}

TransferCounts EmulatedFields::listed_of(const Call& fetch) const {
  const Workload& workload = prices_.workload();
  return listed_of_fetch(fetch, workload.prompts, workload.samples_per_prompt, exchange_.ranks());
}

// As many words as a real rank tells of the rows that it has read. There are none here: they mean
// nothing.
Status EmulatedFields::tell_fetched(const Call& fetch) {
  const Workload& workload = prices_.workload();
  const std::vector<int64_t> sizes =
      told_by_ranks(fetch, workload.prompts, workload.samples_per_prompt, exchange_.ranks());
  const std::vector<int32_t> mine(sizes[exchange_.rank()], 0);
  const std::string what = cat("the share of ", fetch.name);
  return audited(
      what, [&] { return listed_of(fetch); },
      [&] { return exchange_.gather_words(mine, sizes, what).status(); });
}

std::vector<int64_t> EmulatedFields::transfers() {
  std::vector<int64_t> out(program_.exchanges.size(), 0);
  for (size_t i = 0; i < out.size(); ++i) {
    const Exchange& each = program_.exchanges[i];
    const auto entry = static_cast<int32_t>(i);
    if (!account_.has_samples_of(each)) continue;
    if (!each.shared()) {
      out[i] = count_of(account_.transfers(entry, 0));
      continue;
    }
    account_.note_shared(entry, 0);
    const Call& call = program_.graph.calls[each.producer.value];
    if (call.kind == CallKind::kFetch) out[i] = count_of(listed_of(call));
    if (sends_values(each)) out[i] = count_of(account_.transfers(entry, 0));
    for (const std::string& field : each.fields) exchange_.note_everywhere(field);
  }
  begin();  // as before the first one
  return out;
}

Result<EmulatedFields::Arrivals> EmulatedFields::begin_exchange(int32_t entry, int64_t ready_ns) {
  entry_ = entry, ready_ns_ = ready_ns;
  BRAID_TRY(account_.begin_exchange(entry, 0));
  return exchange_.take_arrivals(entry);
}

Status EmulatedFields::await(Arrivals arrivals) const {
  for (FieldExchange::Arrival& each : arrivals) {
    BRAID_TRY(each.pending.wait());
    for (const FieldExchange::Part& part : each.parts)
      compare(each.exchange, part.field, part.rows, part.values);
  }
  return ok_status();
}

Status EmulatedFields::share(int32_t entry, int64_t ready_ns) {
  entry_ = entry, ready_ns_ = ready_ns;
  const Exchange& shared = program_.exchanges[entry];
  account_.note_shared(entry, 0);
  if (sends_values(shared)) return share_values(shared);
  const Call& call = program_.graph.calls[shared.producer.value];
  if (call.kind == CallKind::kFetch) BRAID_TRY(tell_fetched(call));
  for (const std::string& field : shared.fields) exchange_.note_everywhere(field);
  return ok_status();
}

// The counts of a row come from the rank that all hold for the one that says it: they stay what
// they were where all have one account.
Status EmulatedFields::share_values(const Exchange& shared) {
  std::map<std::string, std::vector<int64_t>> before;
  for (const std::string& name : shared.fields) before[name] = store_.counts(name);
  if (tells_scores(program_.graph.calls[shared.producer.value])) {
    std::map<size_t, double> mine;
    const std::vector<SampleRows> told = prices_.told_rows(shared.producer);
    for (const int32_t row : told[exchange_.rank()]) mine[row] = 0;
    BRAID_TRY(account_.tell_scores(shared, 0, mine).status());
  }
  BRAID_TRY(account_.share(shared, 0).status());
  for (const auto& [name, counts] : before)
    if (store_.said_counts().count(name) > 0 && store_.counts(name) != counts)
      misplaced_(cat("the share of ", program_.graph.calls[shared.producer.value].name,
                     ": ranks have different accounts of who has which rows of ", name));
  return ok_status();
}

int64_t EmulatedFields::identity(int32_t entry, const Field& field, const Rows& rows) const {
  uint64_t out = mix_seed(static_cast<uint64_t>(int64_t{entry} + 2), rows.size());
  for (const char letter : field.name) out = mix_seed(out, static_cast<uint64_t>(letter));
  for (const size_t row : rows) out = mix_seed(out, row);
  return static_cast<int64_t>(out >> 1);
}

at::Tensor EmulatedFields::packed(const Field& field, const Rows& rows) {
  return tensor_of({ready_ns_, identity(entry_, field, rows), 0}).view(at::kInt);
}

at::Tensor EmulatedFields::said(const Field&, const Rows& rows) {
  return at::zeros({static_cast<int64_t>(rows.size())}, at::kInt);
}

// With what the sender means.
void EmulatedFields::compare(int32_t entry, const Field& field, const Rows& rows,
                             const at::Tensor& arrived) const {
  if (arrived.numel() == 0) return;
  if (stand_in_of(arrived.view(at::kLong)).what != identity(entry, field, rows))
    misplaced_(cat("exchange ", entry, ": another message than that of ", rows.size(), " rows of ",
                   field.name, " came"));
}

Status EmulatedFields::put(const Field& field, const Rows& rows, const at::Tensor& arrived) {
  compare(entry_, field, rows, arrived);
  return ok_status();
}

}  // namespace braid::inline emulate
