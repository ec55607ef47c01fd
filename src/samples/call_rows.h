// Which rows of the store each rank works on in a call: the partition of the program
// (program/partition.h) over the samples of the store. All ranks compute the same. Not thread-safe.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "algo/algorithm.h"
#include "config/options.h"
#include "program/call_parts.h"
#include "program/computed_rows.h"
#include "program/exchange.h"
#include "program/expand.h"
#include "program/program.h"
#include "program/rows_by_rank.h"
#include "program/scored_prefixes.h"
#include "program/streamed_update.h"
#include "samples/sample_store.h"

namespace braid::inline samples {

Rows rows_of(const SampleRows& rows);

class CallRows : public RowsByRank {
 public:
  // A program that compile(graph) made has one rank, which does everything with the configuration's
  // micro-batches. REQUIRES: the references outlive this.
  CallRows(const Config& config, const Program& program, const SampleStore& store);

  size_t samples() const override { return store_.size(); }
  // The samples have changed: another step.
  void forget();
  // Before those that are not marked are dropped from the store, in step `step`, when all calls
  // before `end` have begun: what ranks were given of a call that runs in parts stays with them,
  // since the responses are there. Where samples were scored in parts since, an update that begins
  // early waits for all: which ones its mini-batches have is another permutation.
  void retain(const std::vector<bool>& kept, int64_t step, CallId end);
  // New tokens that each sample is predicted to get: what a generation expects, and what its
  // replicas are given where the program says so, until the samples change. The same on all ranks.
  void predict(std::vector<int64_t> tokens) { predicted_ = std::move(tokens); }
  const std::vector<int64_t>& predicted() const { return predicted_; }
  // What each replica of a generation is given.
  std::vector<SampleRows> requests(CallId generate) const;
  // The generation of the step is handed over, perhaps again: its rows and those of its scorers
  // come in parts. References to partitions of these end.
  void hand_over(HandOver handed);
  const std::vector<HandOver>& handed() const { return parts_.handed; }

  // The partition of an infer, reward or train call in step `step`. Of a call that runs in parts
  // all samples are what its ranks own alone, but of an update. REQUIRES: lengths of the part are
  // known.
  const Partition& partition(CallId call, int64_t step, SamplePart part = SamplePart::kAll);
  // Of a call that runs in parts, too, what all samples at once would be, with mini-batches.
  Partition partition_whole(CallId call, int64_t step) const;
  // The same with the lengths that the samples of this rank have in another store, whose rows have
  // the numbers of these.
  Partition partition_of(const SampleStore& read, CallId call, int64_t step, int64_t rank,
                         SamplePart part = SamplePart::kAll);
  // Lowers, for this and all later partitions of the call, the most tokens of a micro-batch until
  // those of a mini-batch are others, and returns that; none where each has one sample. Which
  // samples a rank has and what mini-batches consist of does not change, so ranks of other calls
  // need not know.
  std::optional<int64_t> cut_smaller(CallId call, int64_t step, size_t minibatch,
                                     SamplePart part = SamplePart::kAll);
  // Nothing is of use of what an update that begins beside the generation has made before its last
  // part: that has it again.
  void train_again();
  // From here on the call runs its passes in its own order, where they were fused with another's.
  void run_alone(CallId call) { alone_calls_.insert(call.value); }
  // What cut_smaller() has lowered it to, by call: the least of its parts.
  std::map<int32_t, int64_t> lowered() const;
  // Rows that each rank works on, [rank]: rows_by_rank() of the samples here.
  std::vector<SampleRows> by_rank(CallId call, int64_t step, SamplePart part = SamplePart::kAll);
  // The same by data-parallel rank: those that share one's samples work on its rows. REQUIRES: the
  // call uses a model.
  std::vector<SampleRows> owned(CallId call, int64_t step, SamplePart part);
  // What this rank works on.
  Rows mine(CallId call, int64_t step, int64_t rank, SamplePart part = SamplePart::kAll) {
    return rows_of(by_rank(call, step, part)[rank]);
  }
  // Of those the rows whose results a rank has.
  std::vector<SampleRows> written_by_rank(CallId call, int64_t step,
                                          SamplePart part = SamplePart::kAll) override;
  // The rows that each rank must have of what the call reads. Replayed rewards are asked where
  // their rollouts were read, of which nothing has to come.
  std::vector<SampleRows> read_by_rank(CallId call, int64_t step,
                                       SamplePart part = SamplePart::kAll) override;
  std::vector<SampleRows> told_by_rank(CallId call, int64_t step) override;
  // Rows whose rewards each rank finds (program/exchange.h); of a replayed rollout each rank those
  // that it has read.
  std::vector<SampleRows> scored_by_rank(CallId call, int64_t step);
  // Those of them that are asked about in the last part of the call, if it runs in several.
  std::vector<SampleRows> asked_last(CallId call, int64_t step);

  // Tokens of each sample that a part of the call scores ahead of the others or has scored, by row
  // (program/scored_prefixes.h); empty: of none.
  std::vector<int64_t> prefixes(CallId call, SamplePart part) const;

  // The rows of which each rank computes what a compute call writes, [rank].
  const std::vector<ComputedRows>& computed_by_rank(CallId call, int64_t step);

  // The place of a rank in a call; dp_rank -1: it takes no part.
  GridPosition at(CallId call, int64_t rank) const;
  int dp_rank(CallId call, int64_t rank) const { return at(call, rank).dp_rank; }
  // How many ranks take part in a call, and the first of them: what all of its ranks do, that one
  // says.
  int64_t ranks_of(CallId call) const { return std::ssize(placement(call).mesh.devices); }
  int64_t first_rank(CallId call) const;
  // Whether the rank speaks for those that share one data-parallel rank's samples.
  bool leads_replica(CallId call, int64_t rank) const {
    const GridPosition place = at(call, rank);
    return place.tp_rank == 0 && place.stage == placement(call).strategy.pp - 1;
  }
  // What expand() takes. REQUIRES: the call uses a model. Valid as long as this.
  CallFrame frame(CallId call) const;

 private:
  std::vector<PartitionSample> samples_of(const SampleStore& store, CallId call) const;
  // Rows of the data-parallel ranks, on their ranks.
  std::vector<SampleRows> on_ranks(CallId call, std::vector<SampleRows> owned) const;
  // Whether the values of a reward call are those that were recorded.
  bool replays(CallId call) const;
  Partition partition_anew(CallId call, int64_t step, int64_t micro_tokens, SamplePart part) const;
  std::vector<PartitionSample> partitioned(CallId call) const;
  PartitionOptions options_of(CallId call, int64_t step) const;
  bool computes(CallId call) const {
    return program_.graph.calls[call.value].kind == CallKind::kCompute;
  }
  // Whether it is a part of a call without a model that an update which begins beside the
  // generation needs, and the rows of it, [rank].
  bool compares_early(CallId call, SamplePart part) const {
    return !uses_model(program_.graph.calls[call.value]) && of_hand_over(program_, call, part) &&
           program_.graph.calls[call.value].kind != CallKind::kGenerate;
  }
  std::vector<SampleRows> compared_early(int64_t step, SamplePart part);
  // All rows of computed_by_rank(), [rank].
  std::vector<SampleRows> computed(CallId call, int64_t step);
  // Keeps what the ranks were given of a call as it is.
  void note_given(CallId call, int64_t step);
  // Chooses, where an update begins early, the rows that are scored in each part.
  void choose_parts(int64_t step);
  // Until a generation is handed over it and its scorers have all samples at once.
  bool in_parts(CallId call) const {
    const bool handed = hand_overs_of(program_, call) > 0;
    return handed ? !parts_.handed.empty() : scores_beside(program_, call);
  }
  bool placed() const { return !program_.calls.empty(); }
  const CallPlacement& placement(CallId call) const {
    return placed() ? program_.calls[call.value] : alone_;
  }

  const Config& config_;
  const Program& program_;
  const SampleStore& store_;
  CallPlacement alone_;  // one rank with all of every model
  ModelShape whole_;     // of those models: what a single rank's ops depend on
  StepParts parts_;
  std::vector<int64_t> predicted_;  // by row; empty: nothing is
  std::map<std::pair<int32_t, SamplePart>, Partition> partitions_;
  std::map<CallId, std::vector<ComputedRows>> computed_;
  // Of calls that were cut smaller, in parts that have beginnings or rests apart.
  std::map<std::pair<int32_t, PrefixPart>, int64_t> micro_tokens_;
  std::set<int32_t> alone_calls_;
};

// Tokens of the longest micro-batch of any rank.
int64_t most_tokens(const MiniBatch& batch);

}  // namespace braid::inline samples
