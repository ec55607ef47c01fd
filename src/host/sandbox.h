// Runs a program that nobody trusts where it can neither write nor reach anything of this machine.
// It gets namespaces of its own (mounts, processes, network, IPC, host name; of users where this
// process is not root), a root folder that lives in memory and holds the files of the job and
// nothing else, an environment of the job alone, no open files, no rights (an unprivileged user
// without capabilities, no_new_privs, a filter of system calls), and limits of time, memory,
// processes and sizes of files. All that it leaves is thrown away but for one folder that is handed
// back. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"

namespace braid::inline host {

struct SandboxFile {
  std::string content;
  bool executable = false;
};

struct SandboxJob {
  std::map<std::string, SandboxFile> files;    // by absolute path
  std::map<std::string, std::string> links;    // symbolic ones, by absolute path
  std::set<std::string> folders;               // absolute; folders of files need not be named
  std::vector<std::string> argv;               // argv[0] is the path of one of the files
  std::vector<std::string> environment;        // NAME=value
  std::string work;                            // where it starts
  std::string errors;                          // file that takes its standard error
  std::string trace;                           // file that is open as descriptor kTrace; "" = none
  std::string collected;                       // folder whose files are handed back
  double deadline_s = 20;                      // of the job and of all that it starts
  int64_t process_bytes = int64_t{256} << 20;  // address space of a process
  int64_t memory_bytes = int64_t{1} << 30;     // resident, of all processes together
  int64_t file_bytes = int64_t{16} << 20;      // of a file
  int processes = 128;
};

inline constexpr int kTraceDescriptor = 19;

struct SandboxResult {
  std::string ending;                        // "exited with status 3", "killed by signal 9"
  std::string stopped;                       // why it was ended before its own end; "" = it was not
  std::map<std::string, std::string> files;  // of the folder `collected`, by name
};

// Errors: kUnavailable where no such sandbox can be had, with the step that failed; nothing was
// started then.
Result<SandboxResult> run_in_sandbox(const SandboxJob& job);

}  // namespace braid::inline host
