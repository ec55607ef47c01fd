// Prompts and responses packed for one forward, with the hidden rows that matter: the row before
// each response token (it predicts that token, and is where a critic values the state) and each
// sample's last row. Samples with equal prompts may share its rows.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "nn/model.h"
#include "program/layout.h"
#include "samples/sample_store.h"

namespace braid::inline samples {

struct ResponseRows {
  TokenBatch batch;
  at::Tensor rows_R;     // rows that predict the response tokens
  at::Tensor targets_R;  // the response tokens
  at::Tensor last_S;     // each sample's last row

  int64_t count() const { return rows_R.size(0); }
};

// Packs the given rows of the lists. Where prompts are shared, only the first sample of those with
// an equal prompt has its rows: forwards give the bits that they give without. The keys of rows are
// functions of the prompt and the place in it, then of `ids[i]`, the sample of rows[i], and the
// place in that; without ids of the tokens. REQUIRES: prompts are not empty.
ResponseRows pack_responses(const std::vector<std::vector<int32_t>>& prompts,
                            const std::vector<std::vector<int32_t>>& responses,
                            const std::vector<size_t>& rows, at::Device device, bool share_prompts,
                            const std::vector<uint64_t>& ids = {});

// Tokens [begin, end) of each of the rows, whose earlier ones are in caches, and the rows among
// them that predict response tokens which are there. The page tables are the caller's. `parts[i]`
// is of rows[i] and not empty.
ResponseRows pack_parts(const std::vector<std::vector<int32_t>>& prompts,
                        const std::vector<std::vector<int32_t>>& responses,
                        const std::vector<size_t>& rows, const std::vector<Interval>& parts,
                        at::Device device);

// The packed micro-batches of a call that are on their way, by index: packed at their first use,
// and let go once their results are taken.
class PackedBatches {
 public:
  explicit PackedBatches(bool share_prompts) : share_prompts_(share_prompts) {}

  // Of prompts and the tokens of the field `responses`. REQUIRES: the store outlives this until
  // clear().
  Result<TokenBatch> tokens(int32_t micro_batch, const SampleStore& store,
                            const std::string& responses, const Rows& rows, at::Device device);
  const ResponseRows& at(int32_t micro_batch) const { return packed_.at(micro_batch); }
  void erase(int32_t micro_batch) { packed_.erase(micro_batch); }
  void clear() { packed_.clear(); }

 private:
  bool share_prompts_;
  std::map<int32_t, ResponseRows> packed_;
};

}  // namespace braid::inline samples
