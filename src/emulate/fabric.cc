#include "emulate/fabric.h"

#include <ATen/ops/tensor.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <tuple>

#include "base/text.h"

namespace braid::inline emulate {
namespace {

constexpr int32_t kSlots = 16384;
constexpr int32_t kProbes = 512;  // slots in which a key may be
constexpr int32_t kPorts = 1024;
constexpr int32_t kRemembered = 64;  // times in which a port was busy

// Held for its lifetime.
class Lock {
 public:
  explicit Lock(pthread_mutex_t& mutex) : mutex_(mutex) { pthread_mutex_lock(&mutex_); }
  ~Lock() { pthread_mutex_unlock(&mutex_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

Status shared_memory_error(const std::string& what) {
  return io_error(cat("shared memory for the links of emulated devices: ", what, ": ",
                      std::strerror(errno), "; /dev/shm must be writable"));
}

}  // namespace

struct Fabric::Slot {
  pthread_cond_t changed;  // a party has come, or it has begun
  bool said, begun;
  int32_t parties, arrived, awaited, left;
  int64_t length_ns, order;
  int64_t ready_ns;  // of the last party
  int64_t begin_ns, end_ns;
  int32_t ports;
  int16_t port[kMostPorts];

  bool complete() const { return said && arrived == parties; }
};

// When a port is busy, in order. Who comes late with what was ready early finds it free in between.
struct Fabric::Port {
  int64_t forgotten_ns;  // before, it was busy
  int32_t count;
  Span busy[kRemembered];

  // The first time from then on at which it is free for so long.
  int64_t free_from(int64_t ns, int64_t length_ns) const {
    ns = std::max(ns, forgotten_ns);
    for (int32_t i = 0; i < count; ++i)
      if (busy[i].end_ns > ns && busy[i].begin_ns < ns + std::max<int64_t>(length_ns, 1))
        ns = busy[i].end_ns;
    return ns;
  }
  void keep_busy(const Span& span) {
    if (span.end_ns == span.begin_ns) return;
    if (count == kRemembered) {
      forgotten_ns = busy[0].end_ns;
      std::copy(busy + 1, busy + count--, busy);
    }
    Span* const end = busy + count++;
    Span* const at =
        std::find_if(busy, end, [&](const Span& each) { return each.begin_ns > span.begin_ns; });
    std::copy_backward(at, end, end + 1);
    *at = span;
  }
};

struct Fabric::Shared {
  pthread_mutex_t mutex;
  int32_t waiting;        // entries of the list
  int32_t waits[kSlots];  // slots whose parties have all come, which have not begun
  Port port[kPorts];
  uint64_t key[kSlots];  // 0: the slot is free
  Slot slot[kSlots];
};

namespace {

// Maps the segment; the first rank makes it and its locks.
template <typename Shared>
Result<Shared*> map_shared(const std::string& name, bool make) {
  const int file = ::shm_open(name.c_str(), make ? O_RDWR | O_CREAT | O_EXCL : O_RDWR, 0600);
  if (file < 0) return shared_memory_error(cat("opening ", name));
  if (make && ::ftruncate(file, sizeof(Shared)) != 0) {
    ::close(file);
    return shared_memory_error("its size");
  }
  void* const at = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (at == MAP_FAILED) return shared_memory_error("mapping");
  auto* const shared = static_cast<Shared*>(at);  // new pages are zero
  if (!make) return shared;
  pthread_mutexattr_t mutex;
  pthread_mutexattr_init(&mutex);
  pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
  pthread_mutex_init(&shared->mutex, &mutex);
  pthread_condattr_t condition;
  pthread_condattr_init(&condition);
  pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED);
  pthread_condattr_setclock(&condition, CLOCK_MONOTONIC);
  for (auto& slot : shared->slot) pthread_cond_init(&slot.changed, &condition);
  return shared;
}

timespec machine_time(int64_t ns) {
  return {static_cast<time_t>(ns / 1000000000), static_cast<long>(ns % 1000000000)};
}

}  // namespace

Fabric::Fabric(Shared* shared, const FabricOptions& options) : shared_(shared), options_(options) {}
Fabric::~Fabric() { ::munmap(shared_, sizeof(Shared)); }

Result<std::unique_ptr<Fabric>> Fabric::share(Communicator& everyone,
                                              const FabricOptions& options) {
  if (options.ports > kPorts)
    return invalid_input(cat("device: emulated: ", options.ports,
                             " ports of links are more than emulation has, ", kPorts,
                             "; plan for fewer devices"));
  const bool first = everyone.index() == 0;
  // Named by the first rank's process and the time; the name is gone before anyone goes on.
  const at::Tensor key =
      at::tensor({static_cast<int64_t>(::getpid()), EmulatedClock::machine_ns()}, at::kLong);
  const auto name = [&] {
    return cat("/braid-emulated-", key[0].item<int64_t>(), "-", key[1].item<int64_t>());
  };
  Result<Shared*> shared = static_cast<Shared*>(nullptr);
  Status made;
  if (first) {
    shared = map_shared<Shared>(name(), true);
    made = shared.status();
  }
  BRAID_TRY(everyone.broadcast(key, everyone.members()[0], "name of the shared memory").wait());
  if (!first) shared = map_shared<Shared>(name(), false);
  const Status met = everyone.barrier("shared memory");
  if (first && made.ok()) ::shm_unlink(name().c_str());
  BRAID_TRY(shared.status());
  BRAID_TRY(met);
  return std::unique_ptr<Fabric>(new Fabric(*shared, options));
}

// Where a key is, or comes to be.
Result<int32_t> Fabric::slot_of(uint64_t key) {
  int32_t free = -1;
  for (int32_t tried = 0; tried < kProbes; ++tried) {
    const auto at = static_cast<int32_t>((key + static_cast<uint64_t>(tried)) % kSlots);
    if (shared_->key[at] == key) return at;
    if (shared_->key[at] == 0 && free < 0) free = at;
  }
  if (free < 0)
    return Status(Code::kUnavailable,
                  cat("more emulated transfers at a time than there is room for, ", kSlots));
  shared_->key[free] = key;
  Slot& slot = shared_->slot[free];
  slot.said = slot.begun = false;
  slot.arrived = slot.left = slot.ports = 0;
  slot.ready_ns = 0;
  return free;
}

// As of now: what comes later may take its ports before.
int64_t Fabric::begin_of(const Slot& slot) const {
  int64_t out = slot.ready_ns;
  for (int32_t i = 0, free = 0; free < slot.ports; i = (i + 1) % slot.ports) {
    const int64_t next = shared_->port[slot.port[i]].free_from(out, slot.length_ns);
    free = next == out ? free + 1 : 1;  // ports in a row that are free then
    out = next;
  }
  return out;
}

// Begins the transfer that begins first of those that may, in the order of the rule.
bool Fabric::serve_one(int64_t now_ns) {
  int32_t first = -1;
  std::tuple<int64_t, int64_t, int64_t> earliest;
  for (int32_t i = 0; i < shared_->waiting; ++i) {
    const Slot& slot = shared_->slot[shared_->waits[i]];
    const std::tuple at(begin_of(slot), slot.ready_ns, slot.order);
    if (slot.ready_ns + options_.grace_ns > now_ns || std::get<0>(at) > now_ns) continue;
    if (first < 0 || at < earliest) first = i, earliest = at;
  }
  if (first < 0) return false;
  Slot& slot = shared_->slot[shared_->waits[first]];
  shared_->waits[first] = shared_->waits[--shared_->waiting];
  slot.begin_ns = std::get<0>(earliest), slot.end_ns = slot.begin_ns + slot.length_ns;
  for (int32_t i = 0; i < slot.ports; ++i)
    shared_->port[slot.port[i]].keep_busy({slot.begin_ns, slot.end_ns});
  slot.begun = true;
  pthread_cond_broadcast(&slot.changed);
  return true;
}

Status Fabric::come(uint64_t key, int64_t ready_ns, const Transfer* transfer) {
  const Lock lock(shared_->mutex);
  BRAID_ASSIGN(const int32_t at, slot_of(key));
  Slot& slot = shared_->slot[at];
  slot.ready_ns = std::max(slot.ready_ns, ready_ns);
  ++slot.arrived;
  if (transfer != nullptr) {
    BRAID_CHECK(transfer->ports.size() <= kMostPorts, "ports of a transfer");
    slot.said = true;
    slot.parties = transfer->parties, slot.awaited = transfer->awaited;
    slot.length_ns = transfer->length_ns, slot.order = transfer->order;
    slot.ports = static_cast<int32_t>(transfer->ports.size());
    std::copy(transfer->ports.begin(), transfer->ports.end(), slot.port);
  }
  if (!slot.complete()) return ok_status();
  shared_->waits[shared_->waiting++] = at;
  pthread_cond_broadcast(&slot.changed);
  return ok_status();
}

Result<Fabric::Span> Fabric::await(uint64_t key) {
  const int64_t deadline_ns =
      EmulatedClock::machine_ns() + static_cast<int64_t>(options_.deadline_s * 1e9);
  const Lock lock(shared_->mutex);
  BRAID_ASSIGN(const int32_t at, slot_of(key));
  Slot& slot = shared_->slot[at];
  while (true) {
    while (serve_one(clock_.now_ns())) {
    }
    if (slot.begun) break;
    if (EmulatedClock::machine_ns() >= deadline_ns)
      return Status(Code::kDeadline,
                    cat("an emulated transfer did not begin within ", options_.deadline_s,
                        " s: ", slot.arrived, " of ",
                        slot.said ? cat(slot.parties) : std::string("its"), " ranks have come"));
    const int64_t due_ns = std::max(slot.ready_ns + options_.grace_ns, begin_of(slot));
    const int64_t wake_ns = slot.complete() ? due_ns + clock_.origin_ns() : deadline_ns;
    const timespec until = machine_time(std::min(wake_ns, deadline_ns));
    pthread_cond_timedwait(&slot.changed, &shared_->mutex, &until);
  }
  const Span out{slot.begin_ns, slot.end_ns};
  if (++slot.left == slot.awaited) shared_->key[at] = 0;
  return out;
}

Result<Fabric::Span> Fabric::pass(uint64_t key, int64_t ready_ns, const Transfer* transfer) {
  BRAID_TRY(come(key, ready_ns, transfer));
  return await(key);
}

}  // namespace braid::inline emulate
