// The samples of one step and their fields, keyed by (sample, field). Fields are declared by the
// graph; access to any other is an error, as is reading one that was not produced. A row is the
// place of a sample in the step; every rank numbers the rows alike, but may hold the values of only
// some of them, so whoever writes or reads names its rows. Values lie on the host, wherever they
// come from. Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "algo/algorithm.h"
#include "base/ids.h"
#include "base/json.h"
#include "dataflow/graph.h"

namespace braid::inline samples {

struct StoredSample {
  SampleId id;
  GroupId group;  // the position of its prompt in the data, where a step fetched it
  std::string prompt;
  Json extra = Json::object();
  Json messages;  // the prompt as a conversation; null where the data has text
  // What each reward of the list gave, by name, null for nothing; null where none was asked.
  Json rewards = nullptr;
  // Tokens of its response by the version of the weights that drew them, where a generation leaves
  // samples to newer weights (rollout.in_flight).
  std::map<int64_t, int64_t> drawn = {};
  bool here = true;         // false: this rank has not read what the data say of it
  int64_t mismatched = -1;  // position of the record whose response it is compared with; -1: none
};

// Counts that ranks tell each other of the samples that one of them has read: tokens of the prompt,
// and those of the response that training learns.
inline constexpr const char* kPromptLens = "prompt_lens";
inline constexpr const char* kLearnedTokens = "learned_tokens";

// [[version of the weights, tokens that they drew], ...]
Json drawn_json(const StoredSample& sample);
Json sample_json(const StoredSample& sample);
Result<StoredSample> parse_sample(const Json& json);

using TokenLists = std::vector<std::vector<int32_t>>;
using Rows = std::vector<size_t>;

class SampleStore {
 public:
  explicit SampleStore(const Graph& graph);

  // Starts a step: these samples, no field values.
  void begin(std::vector<StoredSample> samples);

  size_t size() const { return samples_.size(); }
  const StoredSample& sample(size_t row) const { return samples_[row]; }
  Rows all_rows() const;
  // What the data say of a sample that was not here.
  void put_texts(size_t row, std::string prompt, Json extra, Json messages);

  // Values of some rows, in their order: a list for each, or f32 packed one row after another
  // ([S] or [R] as declared). Tokens say their rows' counts anew where those were said. REQUIRES:
  // of a field per token, the responses are there.
  Status put_tokens(const std::string& field, const Rows& rows, TokenLists values);
  Status put_reals(const std::string& field, const Rows& rows, const at::Tensor& packed);

  // The lists by row; those of rows that nobody wrote are empty.
  Result<const TokenLists*> tokens(const std::string& field) const;
  // Values of the rows, packed in their order; an error if one of them has none.
  Result<at::Tensor> reals(const std::string& field, const Rows& rows) const;
  bool has(const std::string& field) const {
    return tokens_.count(field) + reals_.count(field) > 0;
  }

  // Names of the fields that have values.
  std::vector<std::string> token_fields() const;
  std::vector<std::string> real_fields() const;
  // The rows for which a real-valued field has values.
  Rows rows_with(const std::string& field) const;

  // A field of counts, of all rows: what was said, else the lengths of the tokens that are here and
  // have it as their sizes, or the samples' groups; zeros before there are any.
  std::vector<int64_t> counts(const std::string& field) const;
  // Those that were said of all rows.
  const std::map<std::string, std::vector<int64_t>>& said_counts() const { return counts_; }
  // Says it of all rows, also of those that other ranks hold. REQUIRES: one for each row.
  void set_counts(const std::string& field, std::vector<int64_t> values) {
    counts_[field] = std::move(values);
  }
  // Whether they were.
  bool says(const std::string& field) const { return counts_.count(field) > 0; }
  // Tokens of each prompt, also of those that are not here.
  std::vector<int64_t> prompt_lens() const;
  // Tokens of each response.
  std::vector<int64_t> response_lens() const { return counts("response_lens"); }
  // The field of the tokens that a call's samples have behind their prompts: the first per token
  // that it reads, else writes; response_ids where it has none.
  std::string responses_of(const Call& call) const;
  // The flag that says of a call's responses whether they were cut, of those that it reads or
  // writes; truncated where it has none.
  std::string cut_flag_of(const Call& call) const;
  // The counts that say how many numbers each sample has of a field; "": one.
  const std::string& sizes_of(const std::string& field) const { return fields_.at(field).sizes; }
  // How many of them each sample has.
  std::vector<int64_t> lens_of(const Call& call) const {
    return counts(sizes_of(responses_of(call)));
  }

  // Says it of all rows.
  void set_lens_of(const Call& call, std::vector<int64_t> values) {
    set_counts(sizes_of(responses_of(call)), std::move(values));
  }

  // Weights of this version have drawn so many further tokens of the row's response.
  void note_drawn(size_t row, int64_t version, int64_t tokens) {
    samples_[row].drawn[version] += tokens;
  }

  void set_drawn(size_t row, std::map<int64_t, int64_t> drawn) {
    samples_[row].drawn = std::move(drawn);
  }

  // Says of these rows what each reward gave, NaN for nothing. REQUIRES: of each, one for each row.
  void set_rewards(const Rows& rows, const std::map<std::string, std::vector<double>>& by_name);
  void put_rewards(size_t row, Json rewards) { samples_[row].rewards = std::move(rewards); }

  // The real-valued ones among `fields` for some rows, in the form that algorithms take. The
  // lengths are those of the first field per token, else of the responses. On `device`.
  Result<AlgoBatch> gather(const std::vector<std::string>& fields, const Rows& rows,
                           at::Device device = at::kCPU) const;

  // Of the values that it has.
  int64_t bytes() const;

  // No row has values of a field any more, as before it was written.
  void drop(const std::string& field) {
    tokens_.erase(field), reals_.erase(field), counts_.erase(field);
  }
  // Keeps only the rows that are marked; later calls see nothing of the others.
  void retain(const std::vector<bool>& kept);
  // The rows of another store of the same graph behind its own.
  void append(SampleStore other);

 private:
  Result<const Field*> declared(const std::string& field) const;
  // The first field of a kind that the call reads, else writes.
  std::string first_of(const Call& call, FieldType type, FieldShape shape,
                       const char* otherwise) const;

  std::map<std::string, Field> fields_;
  std::map<std::string, std::vector<int64_t>> counts_;  // where they were said
  std::vector<StoredSample> samples_;
  std::map<std::string, TokenLists> tokens_;
  std::map<std::string, std::vector<at::Tensor>> reals_;  // by row; undefined: not written
};

}  // namespace braid::inline samples
