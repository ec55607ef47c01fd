#include "host/sandbox_filter.h"

#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace braid::inline host {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
constexpr uint32_t kArchitecture = 0;
#endif

constexpr uint32_t kOtherTable = 0x40000000;  // of x32, which shares the architecture

constexpr long kRefused[] = {
    SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_unshare, SYS_setns, SYS_ptrace,
    SYS_process_vm_readv, SYS_process_vm_writev, SYS_keyctl, SYS_add_key, SYS_request_key, SYS_bpf,
    SYS_perf_event_open, SYS_userfaultfd, SYS_kexec_load, SYS_init_module, SYS_finit_module,
    SYS_delete_module, SYS_open_by_handle_at, SYS_name_to_handle_at, SYS_socket, SYS_socketpair,
    SYS_syslog, SYS_acct, SYS_swapon, SYS_swapoff, SYS_reboot, SYS_settimeofday, SYS_clock_settime,
    SYS_adjtimex, SYS_sethostname, SYS_setdomainname, SYS_quotactl, SYS_personality, SYS_io_setup,
    SYS_sched_setscheduler,
    // By number, for older headers; the same on all processors.
    425 /* io_uring_setup */, 426 /* io_uring_enter */, 428 /* open_tree */, 429 /* move_mount */,
    430 /* fsopen */, 432 /* fsmount */, 433 /* fspick */, 438 /* pidfd_getfd */,
    442 /* mount_setattr */};
constexpr long kClone3 = 435;
constexpr uint32_t kNewNamespaces = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |
                                    CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWCGROUP;

sock_filter statement(uint16_t code, uint32_t k) { return {code, 0, 0, k}; }
sock_filter jump(uint16_t code, uint32_t k, uint8_t yes, uint8_t no) { return {code, yes, no, k}; }

constexpr uint16_t kLoad = BPF_LD | BPF_W | BPF_ABS;
constexpr uint16_t kEqual = BPF_JMP | BPF_JEQ | BPF_K;
constexpr uint16_t kReturn = BPF_RET | BPF_K;
constexpr uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;

void refuse(long call, uint32_t answer, std::vector<sock_filter>* out) {
  out->push_back(jump(kEqual, static_cast<uint32_t>(call), 0, 1));
  out->push_back(statement(kReturn, answer));
}

}  // namespace

std::vector<sock_filter> call_filter() {
  std::vector<sock_filter> out;
  if (kArchitecture == 0) return out;
  out.push_back(statement(kLoad, offsetof(seccomp_data, arch)));
  out.push_back(jump(kEqual, kArchitecture, 1, 0));
  out.push_back(statement(kReturn, SECCOMP_RET_KILL_PROCESS));
  out.push_back(statement(kLoad, offsetof(seccomp_data, nr)));
  out.push_back(jump(BPF_JMP | BPF_JGE | BPF_K, kOtherTable, 0, 1));
  out.push_back(statement(kReturn, kRefuse));
  for (const long call : kRefused) refuse(call, kRefuse, &out);
  // Its flags lie in memory; programs fall back to the older call, whose flags can be seen.
  refuse(kClone3, SECCOMP_RET_ERRNO | ENOSYS, &out);
  out.push_back(jump(kEqual, SYS_clone, 0, 3));
  out.push_back(statement(kLoad, offsetof(seccomp_data, args[0])));
  out.push_back(jump(BPF_JMP | BPF_JSET | BPF_K, kNewNamespaces, 0, 1));
  out.push_back(statement(kReturn, kRefuse));
  out.push_back(statement(kReturn, SECCOMP_RET_ALLOW));
  return out;
}

bool install_filter(const std::vector<sock_filter>& filter) {
  if (filter.empty()) return true;
  sock_fprog program{static_cast<unsigned short>(filter.size()),
                     const_cast<sock_filter*>(filter.data())};
  return ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

bool clear_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  return ::syscall(SYS_capset, &header, none) == 0;
}

}  // namespace braid::inline host
