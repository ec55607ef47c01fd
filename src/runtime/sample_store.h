// The samples of one step and their fields, keyed by (sample, field). Fields are declared by the
// graph; access to any other is an error, as is reading one that was not produced. Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "algo/algorithm.h"
#include "base/ids.h"
#include "base/json.h"
#include "dataflow/graph.h"

namespace braid {

struct StoredSample {
  SampleId id;
  GroupId group;
  std::string prompt;
  Json extra = Json::object();
};

using TokenLists = std::vector<std::vector<int32_t>>;

class SampleStore {
 public:
  explicit SampleStore(const Graph& graph);

  // Starts a step: these samples, no field values.
  void begin(std::vector<StoredSample> samples);

  size_t size() const { return samples_.size(); }
  const StoredSample& sample(size_t row) const { return samples_[row]; }

  Status put_tokens(const std::string& field, TokenLists values);
  Status put_reals(const std::string& field, at::Tensor packed);  // f32 [S] or [R] as declared
  Result<const TokenLists*> tokens(const std::string& field) const;
  Result<at::Tensor> reals(const std::string& field) const;
  bool has(const std::string& field) const {
    return tokens_.count(field) + reals_.count(field) > 0;
  }

  // Tokens of each response; zeros before there are any.
  std::vector<int64_t> response_lens() const;

  // The real-valued ones among `fields` for some rows, in the form that algorithms take.
  Result<AlgoBatch> gather(const std::vector<std::string>& fields,
                           const std::vector<size_t>& rows) const;

  // Keeps only the rows that are marked; later calls see nothing of the others.
  void retain(const std::vector<bool>& kept);

 private:
  Result<const Field*> declared(const std::string& field) const;
  at::Tensor select(const Field& field, const at::Tensor& packed,
                    const std::vector<size_t>& rows) const;

  std::map<std::string, Field> fields_;
  std::vector<StoredSample> samples_;
  std::map<std::string, TokenLists> tokens_;
  std::map<std::string, at::Tensor> reals_;
};

}  // namespace braid
