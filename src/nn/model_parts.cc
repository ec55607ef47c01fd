#include "nn/model_parts.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include "base/text.h"
#include "nn/decoder.h"

namespace braid::inline nn {
namespace {

const Decoder& decoder_of(const Model& model) {
  const auto* decoder = dynamic_cast<const Decoder*>(&model);
  BRAID_CHECK(decoder != nullptr, "a view or an offloaded copy has no parts");
  return *decoder;
}

std::string embedding_name(const ModelSpec& spec) {
  return family_of(spec).names.prefix + family_of(spec).names.embedding;
}

Communicator* group_of_sum(PartialGradient partial, const TensorParallelGroup& group) {
  if (partial == PartialGradient::kNone) return nullptr;
  return partial == PartialGradient::kTensor ? group.communicator : group.shared;
}

// One flat f32 tensor of the gradients, summed over the group and put back.
Status sum_gradients(const std::vector<ParameterPart>& parts, Communicator& group,
                     const GradientOf& gradient) {
  if (parts.empty()) return {};
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> flat;
  for (const ParameterPart& part : parts)
    flat.push_back(gradient(part.name, part.parameter).to(at::kFloat).flatten());
  const at::Tensor all = at::cat(flat);
  if (all.numel() == 0) return {};
  BRAID_TRY(group.all_reduce(all, Reduce::kSum, cat("gradients from ", parts[0].name)).wait());
  int64_t begin = 0;
  for (const ParameterPart& part : parts) {
    const at::Tensor own = gradient(part.name, part.parameter);
    own.copy_(all.narrow(0, begin, own.numel()).view(own.sizes()));
    begin += own.numel();
  }
  return {};
}

}  // namespace

bool is_part(const ModelOptions& options) {
  return !options.ranges.empty() || options.tensor_parallel.tp_size > 1;
}

bool is_part(const Model& model) { return is_part(model.options()); }

std::vector<ParameterPart> trainable_parts(const Model& model) {
  const Decoder& decoder = decoder_of(model);
  const TensorParallelGroup& group = model.options().tensor_parallel;
  const at::Tensor tied = tied_embedding(model);
  std::vector<ParameterPart> out;
  for (const auto& [name, parameter] : model.trainable_parameters()) {
    const TensorShard& shard = decoder.shards().at(name);
    const bool ends = tied.defined() && parameter.is_same(tied);
    const int64_t sum = ends ? kNumbersPerUnit - 1 : static_cast<int64_t>(shard.partial);
    out.push_back({name, parameter, group_of_sum(shard.partial, group), shard.holder == 0,
                   decoder.unit_of(name) * kNumbersPerUnit + sum});
  }
  return out;
}

bool uses_number(const Model& model, size_t range, int64_t number) {
  return decoder_of(model).uses_unit(range, number / kNumbersPerUnit);
}

Status sum_partial_gradients(const Model& model, Communicator& over, const GradientOf& gradient) {
  std::vector<ParameterPart> parts;
  for (ParameterPart& part : trainable_parts(model))
    if (part.sum == &over) parts.push_back(std::move(part));
  return sum_gradients(parts, over, gradient);
}

at::Tensor tied_embedding(const Model& model) {
  const ModelSpec& spec = model.spec();
  const bool one_end = model.has_first() != model.has_last();
  if (!spec.tied_embeddings || spec.scalar_head || !one_end) return {};
  for (const auto& [name, parameter] : model.parameters())
    if (name == embedding_name(spec)) return parameter;
  return {};
}

Status sum_tied_gradients(const Model& model, Communicator& ends, const GradientOf& gradient) {
  const at::Tensor embedding = tied_embedding(model);
  if (!embedding.defined() || !embedding.requires_grad()) return {};
  return sum_gradients({{embedding_name(model.spec()), embedding, &ends, true}}, ends, gradient);
}

std::set<std::string> uncounted_tensors(const Model& model) {
  std::set<std::string> out;
  const at::Tensor tied = tied_embedding(model);
  const bool second_end = tied.defined() && !model.has_first();
  for (const ParameterPart& part : trainable_parts(model))
    if (!part.counted || (second_end && part.parameter.is_same(tied))) out.insert(part.name);
  return out;
}

}  // namespace braid::inline nn
