// A folder that appears in whole or not at all: written beside its place under another name, then
// renamed. A process that dies leaves the other name; the next one that writes to the same place
// removes it. Not thread-safe.
#pragma once

#include <string>

#include "base/status.h"
#include "host/process.h"

namespace braid::inline host {

// Renames a complete folder to `path`, over an earlier folder where there is one: by exchange, so
// that one of the two has the name at every moment. The earlier one has the name `temporary` then.
Status put_in_place(const std::string& temporary, const std::string& path);
// The same where the file system cannot exchange names (NFS): the earlier folder is moved aside
// first, so that for a moment none of the two has the name.
Status put_in_place_by_renames(const std::string& temporary, const std::string& path);

class StagedFolder {
 public:
  // Makes the folder PATH.tmp-PID and its parents. Those of processes that are gone are removed;
  // one that is alive, on whatever machine, holds a lock on its own.
  static Result<StagedFolder> create(const std::string& path);
  StagedFolder(StagedFolder&& other) noexcept;
  StagedFolder& operator=(StagedFolder&& other) = delete;
  // Removes what is not published, and what publish() replaced.
  ~StagedFolder();

  // Where to write.
  const std::string& staging() const { return staging_; }

  // Syncs the folder and gives it its name, in place of an earlier one.
  Status publish();

 private:
  StagedFolder() = default;

  std::string path_, staging_;  // staging_ is "" once moved from
  FileHandle lock_;
};

}  // namespace braid::inline host
