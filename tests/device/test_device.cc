#include "test_device.h"

#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>

#include "device/device.h"
#include "device_memory.h"
#include "device_streams.h"

namespace braid {
namespace {

constexpr c10::DeviceType kType = c10::kPrivateUse1;

std::atomic<int64_t> operators{0}, blocking_copies{0}, deferred_copies{0}, pinned_bytes{0};

struct DeviceAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* piece = DeviceMemory::instance().allocate(bytes);
    return {piece, piece, &release, c10::Device(kType, current_device())};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    const DeviceMemory& memory = DeviceMemory::instance();
    default_copy_data(memory.for_kernels(to), memory.for_kernels(from), bytes);
  }
  static void release(void* piece) { DeviceMemory::instance().release(piece); }
};

// Host memory that is marked as locked; copies from and to it need not block.
struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* piece = std::malloc(bytes);
    const std::lock_guard<std::mutex> lock(mutex());
    pieces()[static_cast<char*>(piece)] = bytes;
    pinned_bytes += static_cast<int64_t>(bytes);
    return {piece, piece, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  static void release(void* piece) {
    const std::lock_guard<std::mutex> lock(mutex());
    pieces().erase(static_cast<char*>(piece));
    std::free(piece);
  }
  static bool holds(const void* pointer) {
    const std::lock_guard<std::mutex> lock(mutex());
    auto* byte = static_cast<char*>(const_cast<void*>(pointer));
    const auto after = pieces().upper_bound(byte);
    if (after == pieces().begin()) return false;
    const auto piece = std::prev(after);
    return byte < piece->first + piece->second;
  }
  static std::mutex& mutex() {
    static auto* one = new std::mutex();
    return *one;
  }
  static std::map<char*, size_t>& pieces() {
    static auto* all = new std::map<char*, size_t>();
    return *all;
  }
};

DeviceAllocator device_allocator;
PinnedAllocator pinned_allocator;

struct DeviceGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {kType, current_device()}; }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.type() == kType && device.index() < kTestDevices, "no device ", device);
    if (device.has_index()) set_current_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) set_current_device(device.index());
  }
  c10::Stream getStream(c10::Device device) const override {
    return current_stream(device.has_index() ? device.index() : current_device());
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return new_stream(device.index());
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return new_stream(device.index());
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = current_stream(stream.device_index());
    set_current_stream(stream);
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kTestDevices; }

  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<StreamPlace*>(event);
  }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    delete static_cast<StreamPlace*>(*event);
    *event = new StreamPlace(place_now(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    put_on_stream(stream, [place = *static_cast<StreamPlace*>(event)] { finish_until(place); });
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || is_reached(*static_cast<StreamPlace*>(event));
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) finish_until(*static_cast<StreamPlace*>(event));
  }
  bool queryStream(const c10::Stream& stream) const override { return is_idle(stream); }
  void synchronizeStream(const c10::Stream& stream) const override { finish_stream(stream); }
  void synchronizeDevice(c10::DeviceIndex device) const override { finish_device(device); }
};

struct DeviceHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kTestDevices; }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_current_device(device); }
  bool isPinnedPtr(const void* data) const override { return PinnedAllocator::holds(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator; }
};

// The same elements for kernels: a CPU tensor over the second mapping. Host tensors stay.
at::Tensor for_kernels(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  TORCH_CHECK(tensor.device().type() == kType, "a tensor of ", tensor.device());
  void* data = tensor.numel() == 0
                   ? nullptr
                   : DeviceMemory::instance().for_kernels(tensor.unsafeGetTensorImpl()->data());
  return at::from_blob(data, tensor.sizes(), tensor.strides(),
                       tensor.options().device(c10::kCPU).requires_grad(false));
}

c10::Device device_or_current(std::optional<c10::Device> device) {
  const c10::Device wanted = device.value_or(c10::Device(kType));
  return wanted.has_index() ? wanted : c10::Device(kType, current_device());
}

at::Tensor empty_memory_format(c10::IntArrayRef size, std::optional<at::ScalarType> dtype,
                               std::optional<at::Layout>, std::optional<c10::Device> device,
                               std::optional<bool>, std::optional<c10::MemoryFormat> format) {
  const c10::DeviceGuard guard(device_or_current(device));
  return at::detail::empty_generic(size, &device_allocator,
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<c10::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(device_or_current(device));
  return at::detail::empty_strided_generic(size, stride, &device_allocator,
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

c10::Device device_of(const at::Tensor& a, const at::Tensor& b) {
  return a.is_cpu() ? b.device() : a.device();
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const c10::Stream stream = current_stream(device_of(from, to).index());
  const at::Tensor source = for_kernels(from).expand(to.sizes()), target = for_kernels(to);
  const at::Tensor& host = from.is_cpu() ? from : to;
  if (non_blocking && host.is_cpu() && PinnedAllocator::holds(host.storage().data())) {
    ++deferred_copies;
    // Device memory stays with its tensors until then, as a caching allocator would keep it.
    put_on_stream(stream, [source, target, from, to] { target.copy_(source); });
    return to;
  }
  finish_stream(stream);
  if (host.is_cpu()) ++blocking_copies;
  target.copy_(source);
  return to;
}

const at::Tensor& resize_tensor(const at::Tensor& self, c10::IntArrayRef size,
                                std::optional<c10::MemoryFormat>) {
  at::TensorImpl* impl = self.unsafeGetTensorImpl();
  const size_t wanted = (impl->storage_offset() + c10::multiply_integers(size)) * self.itemsize();
  c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  if (wanted > storage->nbytes()) {
    const c10::DeviceGuard guard(self.device());
    c10::DataPtr data = device_allocator.allocate(wanted);
    if (storage->nbytes() > 0)
      device_allocator.copy_data(data.mutable_get(), storage->data(), storage->nbytes());
    storage->set_data_ptr_noswap(std::move(data));
    storage->set_nbytes(wanted);
  }
  impl->set_sizes_contiguous(size);
  return self;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) resize_tensor(to, from.sizes(), {});
  return copy_from(from, to, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  finish_stream(current_stream(self.device().index()));
  return at::_local_scalar_dense(for_kernels(self));
}

at::Tensor& set_storage(at::Tensor& self, c10::Storage source, int64_t offset,
                        c10::IntArrayRef size, c10::IntArrayRef stride) {
  TORCH_CHECK(source.device() == self.device(), "set_ takes storage of ", source.device());
  at::TensorImpl* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_storage_offset(offset);
  if (stride.empty())
    impl->set_sizes_contiguous(size);
  else
    impl->set_sizes_and_strides(size, stride);
  return self;
}

// The tensors of a stack's top `count` values, lists included.
std::vector<at::Tensor> tensors_of(const torch::jit::Stack& stack, size_t count) {
  std::vector<at::Tensor> out;
  const auto add = [&](const at::Tensor& tensor) {
    if (tensor.defined()) out.push_back(tensor);
  };
  for (size_t i = stack.size() - count; i < stack.size(); ++i) {
    const c10::IValue& value = stack[i];
    if (value.isTensor()) add(value.toTensor());
    if (value.isTensorList())
      for (const at::Tensor& tensor : value.toTensorVector()) add(tensor);
    if (value.isOptionalTensorList())
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
        if (tensor) add(*tensor);
  }
  return out;
}

// Any operator without a kernel above: its tensors must lie on one device (a number, as a tensor
// without dimensions, may come from the host); then the CPU computes on copies.
void run_on_copies(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  ++operators;
  std::optional<c10::Device> device;
  for (const at::Tensor& tensor : tensors_of(*stack, op.schema().arguments().size())) {
    if (tensor.is_cpu() && tensor.dim() == 0) continue;
    if (!device) device = tensor.device();
    TORCH_CHECK(tensor.device() == *device, op.schema().name(), ": tensors on different devices, ",
                *device, " and ", tensor.device());
  }
  const c10::DeviceGuard guard(device_or_current(device));
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_copies>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", TORCH_FN(empty_memory_format));
  library.impl("empty_strided", TORCH_FN(empty_strided));
  library.impl("_copy_from", TORCH_FN(copy_from));
  library.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  library.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
  library.impl("resize_", TORCH_FN(resize_tensor));
  library.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  library.impl("view", TORCH_FN(at::native::view));
  library.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
}

C10_REGISTER_GUARD_IMPL(PrivateUse1, DeviceGuard);

}  // namespace

at::Device install_test_device() {
  static const bool installed = [] {
    c10::register_privateuse1_backend(kTestDevice);
    c10::SetAllocator(kType, &device_allocator);
    at::RegisterPrivateUse1HooksInterface(new DeviceHooks());
    return true;
  }();
  static_cast<void>(installed);
  return {kType, 0};
}

at::Device tested_device() {
  const char* const name = std::getenv("BRAID_TEST_DEVICE");
  if (name == nullptr) return install_test_device();
  const auto device = parse_device(name, "BRAID_TEST_DEVICE");
  TORCH_CHECK(device.ok(), device.status().message());
  return *device;
}

TestDeviceCounts test_device_counts() {
  return {operators, blocking_copies, deferred_copies, pinned_bytes,
          DeviceMemory::instance().bytes_in_use()};
}

}  // namespace braid
