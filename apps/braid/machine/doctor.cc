// braid doctor: what this machine is, and whether Braid works on it.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/version.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "base/text.h"
#include "braid/engine_options.h"
#include "device/gpu_driver.h"
#include "host/file.h"
#include "host/machine.h"
#include "profile/self_check.h"

namespace braid {
namespace {

// Prints findings and remembers whether one is bad.
class Findings {
 public:
  void say(const std::string& name, const std::string& text) { print("    ", name, text); }
  void check(const std::string& name, bool passed, const std::string& text) {
    print(passed ? "ok  " : "FAIL", name, text);
    failed_ += passed ? 0 : 1;
  }
  int failed() const { return failed_; }

 private:
  static void print(const char* mark, const std::string& name, const std::string& text) {
    std::printf("%s  %-24s %s\n", mark, name.c_str(), text.c_str());
    std::fflush(stdout);
  }
  int failed_ = 0;
};

// The whole command ends here when the limit has passed, whatever it waits for.
void end_by_alarm(int) {
  constexpr char kMessage[] =
      "FAIL  time limit               the checks did not end in time; the last line above shows "
      "how far they came\n";
  [[maybe_unused]] const ssize_t written = ::write(STDOUT_FILENO, kMessage, sizeof kMessage - 1);
  ::_exit(1);
}

void describe_versions(Findings& findings) {
  findings.say("braid", "0.1.0");
  findings.say("libtorch", TORCH_VERSION);
  findings.say("oneDNN", first_line(at::get_mkldnn_version()));
  findings.say("matrix library", first_line(at::get_mkl_version()));
}

void describe_machine(Findings& findings) {
  const Processor cpu = processor();
  findings.say("processor", cpu.model.empty() ? "unknown" : cpu.model);
  findings.say("instructions",
               cat(join(cpu.features, " "), "; libtorch uses ", at::get_cpu_capability()));
  const char* limit = std::getenv("OMP_NUM_THREADS");
  findings.say("threads", cat(at::get_num_threads(), " of ", cpu.cores, " usable cores",
                              limit == nullptr ? "" : cat("; OMP_NUM_THREADS=", limit),
                              "; train.threads sets it"));
  const MachineMemory memory = machine_memory();
  findings.say("memory", cat(format_bytes(static_cast<double>(memory.available_bytes)), " free of ",
                             format_bytes(static_cast<double>(memory.total_bytes))));
}

void describe_gpu(Findings& findings) {
  if (!at::hasCUDA()) {
    findings.say("GPU", "none that this libtorch can use; device: cpu");
    return;
  }
  const int64_t count = at::globalContext().getAcceleratorHooksInterface().deviceCount();
  std::vector<std::string> found;
  for (int64_t i = 0; i < count; ++i)
    if (const auto gpu = driver_gpu(i))
      found.push_back(cat(gpu->name, ", ", format_bytes(static_cast<double>(gpu->memory_bytes))));
  findings.say("GPU", cat(count, " CUDA devices; device: cuda or cuda:N", found.empty() ? "" : ": ",
                          join(found, "; ")));
}

void check_disk(const std::string& folder, Findings& findings) {
  const std::string file = join_path(folder, cat(".doctor.", ::getpid()));
  const bool was_there = path_exists(folder);
  Status status = make_folder(folder);
  if (status.ok()) status = write_file_atomic(file, "x");
  ::unlink(file.c_str());
  const auto room = free_disk_bytes(folder);
  if (!was_there) ::rmdir(folder.c_str());  // empty
  findings.check(
      "writing results", status.ok(),
      status.ok()
          ? cat(folder, ", ", room.ok() ? format_bytes(static_cast<double>(*room)) : "?", " free")
          : status.message());
}

Status examine(const DoctorOptions& options) {
  std::signal(SIGALRM, end_by_alarm);
  ::alarm(options.time_limit_s);
  const auto start = std::chrono::steady_clock::now();
  Findings findings;
  describe_versions(findings);
  describe_machine(findings);
  describe_gpu(findings);
  check_disk(options.folder, findings);
  for (const SelfTestResult& result : run_self_test())
    findings.check(result.name, result.passed, result.detail);
  ::alarm(0);
  findings.say(
      "time", format_seconds(
                  std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()));
  if (findings.failed() == 0) return ok_status();
  return {Code::kStopped, cat(findings.failed(), " checks failed")};
}

}  // namespace

extern const Command kDoctorCommand = kDoctor.with(
    [](const DoctorOptions& options, const std::vector<std::string>&) { return examine(options); });

}  // namespace braid
