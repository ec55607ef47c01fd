#include "emulate/fabric.h"

#include <ATen/ops/tensor.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/text.h"

namespace braid::inline emulate {
namespace {

constexpr int32_t kSlots = 16384;
constexpr int32_t kPorts = 1024;

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

struct Fabric::Shared {
  struct Slot {
    pthread_cond_t changed;
    bool taken, granted, freed;
    int32_t parties, arrived, left;
    int64_t length_ns, order;
    int64_t ready_ns, due_ns;  // of the last party; when it may be served
    int64_t begin_ns, end_ns;
    int32_t ports;
    int16_t port[kMostPorts];
  };
  struct Port {
    bool busy;
    int64_t free_ns;  // since when, or until when it is busy
  };
  pthread_mutex_t mutex;
  int32_t next;           // where the search for a free slot begins
  int32_t waiting;        // entries of the list
  int32_t waits[kSlots];  // slots whose parties have all come, in the order of the rule
  Port port[kPorts];
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

Result<int32_t> Fabric::open(const Transfer& transfer) {
  BRAID_CHECK(transfer.ports.size() <= kMostPorts, "ports of a transfer");
  const Lock lock(shared_->mutex);
  for (int32_t tried = 0; tried < kSlots; ++tried) {
    const int32_t at = (shared_->next + tried) % kSlots;
    Shared::Slot& slot = shared_->slot[at];
    if (slot.taken) continue;
    shared_->next = (at + 1) % kSlots;
    slot.taken = true, slot.granted = slot.freed = false;
    slot.parties = transfer.parties, slot.arrived = slot.left = 0;
    slot.length_ns = transfer.length_ns, slot.order = transfer.order, slot.ready_ns = 0;
    slot.ports = static_cast<int32_t>(transfer.ports.size());
    std::copy(transfer.ports.begin(), transfer.ports.end(), slot.port);
    return at;
  }
  return Status(Code::kUnavailable, cat("more than ", kSlots, " emulated transfers at a time"));
}

// Begins what waits for nothing any more, in the order of the rule.
void Fabric::serve(int64_t now_ns) {
  int32_t kept = 0;
  for (int32_t i = 0; i < shared_->waiting; ++i) {
    const int32_t id = shared_->waits[i];
    Shared::Slot& slot = shared_->slot[id];
    const int16_t *const first = slot.port, *const end = first + slot.ports;
    const bool busy = slot.due_ns > now_ns || std::any_of(first, end, [&](int16_t port) {
                        return shared_->port[port].busy;
                      });
    if (busy) {
      shared_->waits[kept++] = id;
      continue;
    }
    slot.begin_ns = slot.ready_ns;
    for (const int16_t* port = first; port != end; ++port)
      slot.begin_ns = std::max(slot.begin_ns, shared_->port[*port].free_ns);
    slot.end_ns = slot.begin_ns + slot.length_ns;
    for (const int16_t* port = first; port != end; ++port)
      shared_->port[*port] = {true, slot.end_ns};
    slot.granted = true;
    pthread_cond_broadcast(&slot.changed);
  }
  shared_->waiting = kept;
}

Result<Fabric::Span> Fabric::pass(int32_t id, int64_t ready_ns) {
  const int64_t deadline_ns =
      EmulatedClock::machine_ns() + static_cast<int64_t>(options_.deadline_s * 1e9);
  const Lock lock(shared_->mutex);
  Shared::Slot& slot = shared_->slot[id];
  slot.ready_ns = std::max(slot.ready_ns, ready_ns);
  const bool complete = ++slot.arrived == slot.parties;
  if (complete) {
    slot.due_ns = slot.ready_ns + options_.grace_ns;
    const auto before = [&](int32_t a, int32_t b) {
      const Shared::Slot &x = shared_->slot[a], &y = shared_->slot[b];
      return std::pair(x.ready_ns, x.order) < std::pair(y.ready_ns, y.order);
    };
    int32_t* const end = shared_->waits + shared_->waiting++;
    int32_t* const at = std::upper_bound(shared_->waits, end, id, before);
    std::copy_backward(at, end, end + 1);
    *at = id;
    serve(clock_.now_ns());
  }
  while (!slot.granted) {
    // Who completed the transfer comes back when it is due; what it waits for then wakes it.
    const int64_t due =
        complete && slot.due_ns > clock_.now_ns() ? slot.due_ns + clock_.origin_ns() : deadline_ns;
    const timespec until = machine_time(std::min(due, deadline_ns));
    pthread_cond_timedwait(&slot.changed, &shared_->mutex, &until);
    if (slot.granted) break;
    if (EmulatedClock::machine_ns() >= deadline_ns)
      return Status(Code::kDeadline,
                    cat("an emulated transfer did not begin within ", options_.deadline_s,
                        " s: ", slot.arrived, " of ", slot.parties, " ranks have come"));
    serve(clock_.now_ns());
  }
  return Span{slot.begin_ns, slot.end_ns};
}

void Fabric::leave(int32_t id) {
  const Lock lock(shared_->mutex);
  Shared::Slot& slot = shared_->slot[id];
  if (!slot.freed) {
    slot.freed = true;
    for (int32_t i = 0; i < slot.ports; ++i) shared_->port[slot.port[i]].busy = false;
    serve(clock_.now_ns());
  }
  if (++slot.left == slot.parties) slot.taken = false;
}

}  // namespace braid::inline emulate
