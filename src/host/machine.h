// What this process and machine are like: memory and processor, as the operating system tells.
// Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace braid::inline host {

// The most memory that this process has held so far.
int64_t peak_memory_bytes();

// Freed blocks of megabytes stay in the process for the next ones: activations come and go with
// every layer, and memory that is new to a process costs a page fault for every 4 KiB. For the
// whole process; call before threads start.
void keep_free_heap();

// Gives back to the system what keep_free_heap() kept.
void release_free_heap();

// The folder of the program that this process runs, links followed.
std::string program_folder();

struct MachineMemory {
  int64_t total_bytes = 0;
  int64_t available_bytes = 0;  // without swapping; 0 where the system does not say
};
MachineMemory machine_memory();

// Whether this process can start that many more threads at the same time; the error says how many
// it could. Starts and ends them.
Status check_threads(int64_t count);

// Whether this process can have that many files open at once. Raises its limit as far as the system
// lets it.
Status check_open_files(int64_t count);

struct Processor {
  std::string model;                  // "" where the system does not say
  std::vector<std::string> features;  // of those that speed up GEMMs: avx2, avx512f, ...
  int64_t cores = 0;                  // that this process may use
};
Processor processor();

}  // namespace braid::inline host
