// The samples that a step of a run begins with. Which ones they are is a pure function of the data
// set and a position in it, so that every rank knows their numbers; what a row of the data says, a
// rank reads where a call of its needs it. So that all know how long all rows are, each rank reads
// a share of them when the step begins and tells the others. Not thread-safe; note_bad_rows() is.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "algo/run_position.h"
#include "config/options.h"
#include "data/data_check.h"
#include "data/dataset.h"
#include "dataflow/graph.h"
#include "inputs/run_data.h"
#include "samples/sample_store.h"

namespace braid::inline samples {

class SampleReader {
 public:
  // Of one rank of `ranks`, and what the graph's fetch wants of the data. REQUIRES: the references
  // outlive this.
  SampleReader(const Graph& graph, const DataSet& data, const RolloutConfig& options, int64_t rank,
               int64_t ranks);

  // Reads this rank's share of `prompts` records (or pairs) from `cursor` on: as many as each other
  // rank, or one fewer, in the order of the ranks. Returns what all ranks must know of them
  // (told_numbers() of each). Errors name file and line.
  Result<std::vector<int32_t>> read_share(int64_t cursor, int64_t prompts);
  // Starts the step in the store, with samples_per_prompt samples of each record where responses
  // are generated. `told`: what read_share() returned on each rank, in their order. The store has
  // the lengths of all rows then, and the values of this rank's share.
  Status begin(int64_t cursor, const std::vector<std::vector<int32_t>>& told, SampleStore& store);

  // Whether a call needs what the data say of its samples, beside how many and how long they are.
  bool needed_by(const Call& call) const;
  // Reads what the store lacks of these rows, with the other samples of their prompts.
  Status read(const Rows& rows, SampleStore& store);

  // Records that were read since a step began.
  int64_t records_read() const { return records_read_; }
  void begin_step() { records_read_ = 0; }

 private:
  struct Told;  // of all samples of a step
  std::vector<int32_t> told_of(const DataRecord& record) const;
  Result<Told> all_told(const std::vector<std::vector<int32_t>>& told) const;
  std::vector<StoredSample> samples_of(int64_t cursor, const Told& told) const;
  Result<const DataRecord*> record_at(int64_t position);
  Status fill(const Rows& rows, SampleStore& store);

  const Call& fetch_;
  const DataSet& data_;
  int64_t prompts_ = 0;  // of which a share was read
  const int64_t rank_, ranks_;
  const bool pairs_, answered_, compares_, masks_;
  const int64_t copies_;                   // samples of a record
  std::set<std::string> fields_;           // that the fetch writes, beside counts
  std::map<int64_t, DataRecord> records_;  // by position: of the open read
  int64_t records_read_ = 0;
};

// A warning for each bad row that a check of the training data has found since the last call: its
// place, and the first step that needs it, from the one at `position` on.
void note_bad_rows(const Config& config, const DataSet& data, const RunPosition& position,
                   DataCheck& check);

}  // namespace braid::inline samples
