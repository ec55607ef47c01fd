// Checked access to the fields of an AlgoBatch. Stateless.
#pragma once

#include "algo/algorithm.h"

namespace braid::inline algo {

// Offsets of the samples in the packed tokens: S + 1 entries, the last is R.
std::vector<int64_t> sample_begins(const AlgoBatch& batch);

// Total response tokens R.
int64_t token_count(const AlgoBatch& batch);

// The field with R (per token) or S (per sample) elements; an error when it is missing or has
// another number of elements.
Result<at::Tensor> token_field(const AlgoBatch& batch, const std::string& name);
Result<at::Tensor> sample_field(const AlgoBatch& batch, const std::string& name);

// The same as doubles on the CPU.
Result<std::vector<double>> token_numbers(const AlgoBatch& batch, const std::string& name);
Result<std::vector<double>> sample_numbers(const AlgoBatch& batch, const std::string& name);

// Indices of the members of each group, in the order of their first; an error where a sample has
// nobody to be compared with.
Result<std::vector<std::vector<size_t>>> compared_groups(const AlgoBatch& batch);
Result<std::vector<std::vector<size_t>>> compared_groups(const std::vector<int64_t>& groups);

// One number of each sample [S], repeated for each of its tokens [R].
std::vector<double> per_token(const AlgoBatch& batch, const std::vector<double>& values_S);

// Every model output that a loss uses must have `size` elements.
Status check_output(const at::Tensor& output, int64_t size, const std::string& name);

// The sums that a function goes by: those of the step, or its own where the batch is all of it.
const StepSums& sums_to_use(const AlgoBatch& batch, const StepSums& own);

// Copies to the CPU as doubles; and f32 on the device of `like`.
std::vector<double> to_doubles(const at::Tensor& tensor);
at::Tensor from_doubles(const std::vector<double>& values, const at::Tensor& like);

}  // namespace braid::inline algo
