// The checkpoint that a run continues from: found once, its manifest and state.json read once, for
// all who need something of them before its tensors are read. Plain values.
#pragma once

#include <string>
#include <utility>

#include "base/json.h"
#include "base/status.h"
#include "checkpoint/manifest.h"

namespace braid::inline checkpoint {

class ResumedCheckpoint {
 public:
  // None: the run begins anew.
  ResumedCheckpoint() = default;
  // Of the checkpoint in a folder. kNotFound: there is none; kDataLoss names the file and what is
  // wrong with it.
  static Result<ResumedCheckpoint> read(const std::string& path);
  // The one that checkpoint.resume means: none for "none" and for "auto" in a folder without any;
  // under "auto" the newest one, otherwise the one at that path. The sizes of all files are checked
  // where `all_files`; hashes are compared by who reads the tensors. A damaged checkpoint is
  // refused as refused_as_damaged() says.
  static Result<ResumedCheckpoint> find(const std::string& resume, const std::string& folder,
                                        bool all_files = false);

  bool none() const { return path_.empty(); }
  // "" of none.
  const std::string& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  // state.json
  const Json& numbers() const { return numbers_; }
  Json take_numbers() && { return std::move(numbers_); }

 private:
  std::string path_;
  Manifest manifest_;
  Json numbers_;
};

}  // namespace braid::inline checkpoint
