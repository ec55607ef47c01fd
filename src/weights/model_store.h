// A model's tensors on this rank addressed as reallocation plans do (weights/element_store.h): by
// kind, layer and elements of the tensor map (program/tensor_map.h). Not thread-safe.
#pragma once

#include <map>
#include <string>

#include "nn/decoder.h"
#include "program/tensor_map.h"
#include "weights/element_store.h"

namespace braid::inline weights {

class ModelStore : public ElementStore {
 public:
  // `map` is that of the model's spec. REQUIRES: both outlive this.
  ModelStore(Model& model, const TensorMap& map);

  at::TensorOptions options() const override { return options_; }
  std::string name(int32_t kind, int64_t layer, const Interval& elements) const override;
  at::Tensor span(int32_t kind, int64_t layer, const Interval& elements) const override;
  void read(int32_t kind, int64_t layer, const Interval& elements,
            const at::Tensor& to) const override;
  void write(int32_t kind, int64_t layer, const Interval& elements,
             const at::Tensor& from) override;
  // Whether the elements are the same memory in both.
  bool is_alias_of(const ModelStore& other, int32_t kind, int64_t layer,
                   const Interval& elements) const;

 private:
  struct Held {
    at::Tensor values;                   // this rank's part
    const TensorShard* shard = nullptr;  // of the whole tensor
  };
  // Calls visit(rectangle of a tensor on this rank, first of its elements) for all of them.
  template <typename Visit>
  void each_rectangle(int32_t kind, int64_t layer, const Interval& elements,
                      const Visit& visit) const;

  const TensorMap& map_;
  at::TensorOptions options_;
  std::map<std::string, Held> held_;  // by Hugging Face name
};

}  // namespace braid::inline weights
