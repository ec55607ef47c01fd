// Prompts and responses packed for one forward, with the hidden rows that matter: the row before
// each response token (it predicts that token, and is where a critic values the state) and each
// sample's last row.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/model.h"

namespace braid {

struct ResponseRows {
  TokenBatch batch;
  at::Tensor rows_R;     // rows that predict the response tokens
  at::Tensor targets_R;  // the response tokens
  at::Tensor last_S;     // each sample's last row
};

// Packs the given rows of the lists. REQUIRES: prompts are not empty.
ResponseRows pack_responses(const std::vector<std::vector<int32_t>>& prompts,
                            const std::vector<std::vector<int32_t>>& responses,
                            const std::vector<size_t>& rows, at::Device device);

}  // namespace braid
