// What `braid profile` measures with: a clock, the other ranks that are busy meanwhile, and layers
// of a model as they run in a step. One thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "models/spec.h"
#include "nn/model.h"

namespace braid::inline profile {

// Where work is measured, and what a measurement costs.
struct ProfileBench {
  at::Device device;
  at::ScalarType dtype = at::kFloat;
  double seconds = 0;
  // All ranks of this machine that measure at the same time; null: this process alone.
  Communicator* everyone = nullptr;
};

// The mean time of one call of `work` after a first one that warms up; three at least. A step is a
// sum of many such calls, of which some wait for a core or for memory: a median would leave these
// out. All ranks begin together, so each has the share of the machine that it has in a step of all.
// `before` runs before each call and is not timed: what a step does there, so that what `work`
// reads has left the caches.
double mean_s(const ProfileBench& bench, const std::function<void()>& work,
              const std::function<void()>& before = {});

// Layers of one model in the middle of its stack, so that neither embedding nor head is timed with
// them. As many as fit in a gibibyte: then their weights come from memory as in a run, not from
// cache.
class LayerBench {
 public:
  static Result<LayerBench> make(const ModelSpec& spec, const ProfileBench& bench);

  int64_t layers() const { return model_->ranges()[0].end - model_->ranges()[0].begin; }
  Model& model() { return *model_; }

  // Seconds of a layer: of a forward pass; of one that keeps what the backward needs, with the
  // backward; of one token of each sequence against its cache.
  double forward_s(int64_t tokens, int64_t length);
  double train_s(int64_t tokens, int64_t length);
  double decode_s(int64_t sequences, int64_t context, const std::function<void()>& before);
  // What the caches of decode_s() take.
  double cache_bytes(int64_t sequences, int64_t context) const;
  // A forward pass of so many tokens that nobody times.
  void pass(int64_t tokens);

  // Knobs of memory (pricing/efficiency.h) by name, from passes over so many tokens.
  // REQUIRES: tensors of the device are counted.
  std::map<std::string, double> memory(int64_t tokens, int64_t length);

 private:
  LayerBench(const ProfileBench& bench, const ModelSpec& spec) : bench_(bench), spec_(spec) {}

  at::Tensor hidden(int64_t tokens) const;
  std::vector<KvLayer> make_cache(int64_t pages) const;
  double per_layer_s(const std::function<void()>& work,
                     const std::function<void()>& before = {}) const {
    return mean_s(bench_, work, before) / static_cast<double>(layers());
  }

  ProfileBench bench_;
  ModelSpec spec_;
  std::unique_ptr<Model> model_;
};

}  // namespace braid::inline profile
