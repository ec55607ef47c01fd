#include "algo/batch.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <numeric>

#include "algo/statistics.h"
#include "base/text.h"

namespace braid::inline algo {
namespace {

Result<at::Tensor> field(const AlgoBatch& batch, const std::string& name, int64_t size) {
  const auto found = batch.fields.find(name);
  if (found == batch.fields.end() || !found->second.defined()) {
    return invalid_input(cat("field ", name, " is missing; no call of the graph wrote it"));
  }
  BRAID_TRY(check_output(found->second, size, cat("field ", name)));
  return found->second.reshape({size});
}

Result<std::vector<double>> numbers(Result<at::Tensor> tensor) {
  if (!tensor.ok()) return tensor.status();
  return to_doubles(*tensor);
}

}  // namespace

std::vector<int64_t> sample_begins(const AlgoBatch& batch) {
  std::vector<int64_t> begins(batch.response_lens.size() + 1, 0);
  std::partial_sum(batch.response_lens.begin(), batch.response_lens.end(), begins.begin() + 1);
  return begins;
}

int64_t token_count(const AlgoBatch& batch) { return sample_begins(batch).back(); }

Result<at::Tensor> token_field(const AlgoBatch& batch, const std::string& name) {
  return field(batch, name, token_count(batch));
}

Result<at::Tensor> sample_field(const AlgoBatch& batch, const std::string& name) {
  return field(batch, name, static_cast<int64_t>(batch.response_lens.size()));
}

Result<std::vector<double>> token_numbers(const AlgoBatch& batch, const std::string& name) {
  return numbers(token_field(batch, name));
}

Result<std::vector<double>> sample_numbers(const AlgoBatch& batch, const std::string& name) {
  return numbers(sample_field(batch, name));
}

Result<std::vector<std::vector<size_t>>> compared_groups(const AlgoBatch& batch) {
  if (batch.groups.size() == batch.response_lens.size()) return compared_groups(batch.groups);
  return invalid_input(cat("the rollout has ", batch.response_lens.size(), " samples but ",
                           batch.groups.size(), " group ids"));
}

Result<std::vector<std::vector<size_t>>> compared_groups(const std::vector<int64_t>& groups) {
  std::vector<std::vector<size_t>> out = group_members(groups);
  for (const std::vector<size_t>& members : out) {
    if (members.size() < 2) {
      return invalid_input(cat("group ", groups[members[0]],
                               " has one sample; group statistics need at least two: set "
                               "rollout.samples_per_prompt to 2 or more"));
    }
  }
  return out;
}

std::vector<double> per_token(const AlgoBatch& batch, const std::vector<double>& values_S) {
  std::vector<double> values_R;
  for (size_t s = 0; s < values_S.size(); ++s)
    values_R.insert(values_R.end(), batch.response_lens[s], values_S[s]);
  return values_R;
}

Status check_output(const at::Tensor& output, int64_t size, const std::string& name) {
  if (!output.defined()) return invalid_input(cat(name, " is missing"));
  if (output.numel() == size) return {};
  return invalid_input(cat(name, " has ", output.numel(), " elements, expected ", size));
}

const StepSums& sums_to_use(const AlgoBatch& batch, const StepSums& own) {
  return batch.step_sums ? *batch.step_sums : own;
}

std::vector<double> to_doubles(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kCPU, at::kDouble).contiguous();
  const double* begin = flat.const_data_ptr<double>();
  return {begin, begin + flat.numel()};
}

at::Tensor from_doubles(const std::vector<double>& values, const at::Tensor& like) {
  const auto size = static_cast<int64_t>(values.size());
  const at::Tensor view =
      at::from_blob(const_cast<double*>(values.data()), {size}, at::TensorOptions(at::kDouble));
  return at::empty({size}, like.options().dtype(at::kFloat)).copy_(view);
}

}  // namespace braid::inline algo
