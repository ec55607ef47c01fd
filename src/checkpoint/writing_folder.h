// The folder that a job writes a checkpoint into before it has its name. It is of one job: its name
// has a hash of that, and a file in it says it, which every process holds a lock of while it writes
// there. Not for callers outside checkpoint. Functions are thread-safe.
#pragma once

#include <string>

#include "checkpoint/checkpoint.h"
#include "host/process.h"

namespace braid::inline checkpoint {

// FOLDER/.writing-step-000012.JOB, with a few digits of the job's hash.
std::string writing_path(const SavePlace& place, const SavePoint& at);

// Makes it. On the first rank.
Status make_writing(const SavePlace& place, const SavePoint& at);
// For as long as a process writes there; closed where the folder is gone.
FileHandle hold_writing(const std::string& writing);
// Takes the job's file out of it: it is to become a checkpoint.
void release_writing(const std::string& writing);

// Removes what an interrupted save or removal left behind. What another job left is said, and kept
// where a process of it still writes there.
Status remove_leftovers(const SavePlace& place);

}  // namespace braid::inline checkpoint
