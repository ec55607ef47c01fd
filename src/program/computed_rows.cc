#include "program/computed_rows.h"

#include <algorithm>
#include <utility>

#include "base/contains.h"
#include "program/exchange.h"
#include "program/placement.h"

namespace braid::inline program {
namespace {

// Whether the ranks that read the results of a compute call can have what it looks at of a field:
// all ranks know counts, and what is shared; numbers of tokens come of the rows that they are of.
bool has_at_readers(const Graph& graph, const std::string& name) {
  for (const Call& from : graph.calls)
    for (const Field& field : from.writes)
      if (field.name == name)
        return field.type == FieldType::kTokens || field.type == FieldType::kCount ||
               (ends_with_share(from) && contains(shared_fields(from), name)) ||
               field.shape == FieldShape::kPerToken;
  return false;
}

}  // namespace

bool computed_by_readers(const Graph& graph, const Call& call) {
  if (call.kind != CallKind::kCompute || !call.by_groups || call.steps_ahead > 0) return false;
  return std::all_of(call.reads.begin(), call.reads.end(),
                     [&](const std::string& name) { return has_at_readers(graph, name); });
}

SampleRows all_of(const ComputedRows& rows) {
  SampleRows out;
  std::merge(rows.reported.begin(), rows.reported.end(), rows.others.begin(), rows.others.end(),
             std::back_inserter(out));
  return out;
}

std::vector<ComputedRows> computed_by_rank(
    const Program& program, CallId id, const SampleRows& rows, const std::vector<int64_t>& groups,
    const std::function<std::vector<SampleRows>(CallId)>& read) {
  const Call& call = program.graph.calls[id.value];
  const auto unit = [&](int32_t row) { return call.by_samples ? row : groups[row]; };
  const std::vector<DeviceId>& devices = program.calls[id.value].mesh.devices;
  std::vector<std::pair<int64_t, int32_t>> readers;  // of a group or sample: it, and a rank
  if (computed_by_readers(program.graph, call))
    for (const CallId reader : readers_of(program.graph, id)) {
      const std::vector<SampleRows> by_rank = read(reader);
      for (int32_t rank = 0; rank < std::ssize(by_rank); ++rank)
        for (const int32_t row : by_rank[rank]) readers.emplace_back(unit(row), rank);
    }
  std::sort(readers.begin(), readers.end());
  readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
  const int32_t first = std::min_element(devices.begin(), devices.end())->value;
  std::vector<ComputedRows> out(program.ranks.size());
  for (const int32_t row : rows) {
    const int64_t of = unit(row);
    auto at = std::lower_bound(readers.begin(), readers.end(), std::pair(of, int32_t{0}));
    const bool is_read = at != readers.end() && at->first == of;
    out[is_read ? at->second : first].reported.push_back(row);
    while (is_read && ++at != readers.end() && at->first == of)
      out[at->second].others.push_back(row);
  }
  return out;
}

}  // namespace braid::inline program
