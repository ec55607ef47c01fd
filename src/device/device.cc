#include "device/device.h"

#include <ATen/Context.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>

#include "base/text.h"

namespace braid::inline device {
namespace {

std::optional<at::DeviceType> accelerator_of(const std::string& name) {
  if (name == "cuda") return at::kCUDA;
  if (c10::is_privateuse1_backend_registered() && name == c10::get_privateuse1_backend())
    return at::kPrivateUse1;
  return std::nullopt;
}

int64_t devices_of(at::DeviceType type) {
  return c10::impl::hasDeviceGuardImpl(type) ? c10::impl::getDeviceGuardImpl(type)->deviceCount()
                                             : 0;
}

// Sums of an accelerator in an order of their own each time would give a run other bits when it is
// repeated or continued; cuBLAS wants a workspace of a fixed size for that. cuDNN's attention
// prepares itself anew for each shape of a batch, which takes longer than computing it.
void choose_kernels() {
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(false);
  context.setSDPUseCuDNN(false);
}

// BRAID_SHARE_GPU=1: the ranks of a machine take its devices by turns, so that communication
// between ranks can be tried where there are fewer devices. It gives no speed.
bool ranks_share_devices() {
  const char* value = std::getenv("BRAID_SHARE_GPU");
  return value != nullptr && std::string(value) == "1";
}

}  // namespace

Result<at::Device> parse_device(const std::string& text, const std::string& key) {
  if (text == "cpu") return at::Device(at::kCPU);
  if (text == "emulated")
    return invalid_input(cat(key, ": emulated: only 'braid train' runs on emulated devices"));
  const size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  const auto type = accelerator_of(name);
  int64_t index = -1;
  const bool numbered = colon == std::string::npos || parse_int(text.substr(colon + 1), &index);
  if (!type || !numbered)
    return invalid_input(cat(key, ": '", text, "' is not cpu, cuda or cuda:N"));
  const int64_t devices = devices_of(*type);
  if (devices == 0)
    return invalid_input(cat(key, ": ", text,
                             ": no CUDA device can be used here (no GPU, no driver, or a libtorch "
                             "without CUDA); 'braid doctor' shows which; device=cpu needs none"));
  choose_kernels();
  if (colon == std::string::npos) return c10::impl::getDeviceGuardImpl(*type)->getDevice();
  if (index < 0 || index >= devices)
    return invalid_input(cat(key, ": ", text, ": this machine has ", devices, " ", name,
                             " devices, ", name, ":0 to ", name, ":", devices - 1));
  return at::Device(*type, static_cast<at::DeviceIndex>(index));
}

Status check_local_devices(const std::string& text, int64_t ranks) {
  if (text == "cpu") return ok_status();
  if (text.find(':') != std::string::npos)
    return invalid_input(cat("device: ", text,
                             ": each of several ranks takes the device of its own number on its "
                             "machine; leave the number out"));
  BRAID_ASSIGN(const at::Device first, parse_device(text, "device"));
  const int64_t devices = devices_of(first.type());
  if (ranks <= devices || (ranks_share_devices() && devices > 0)) return ok_status();
  return invalid_input(cat("device: ", text, ": ", ranks, " ranks on a machine where they find ",
                           devices, " ", text,
                           " devices; start at most one rank for each, and let every rank see all "
                           "of them"));
}

Status use_local_device(const std::string& text, int64_t local_rank) {
  BRAID_TRY(check_local_devices(text, local_rank + 1));
  if (text == "cpu") return ok_status();
  BRAID_ASSIGN(const at::Device first, parse_device(text, "device"));
  int64_t index = local_rank;
  if (ranks_share_devices()) {
    index %= devices_of(first.type());
    // NCCL refuses two ranks on one GPU of one machine: each is a machine of its own to it.
    ::setenv("NCCL_HOSTID", cat("process ", ::getpid()).c_str(), /*overwrite=*/0);
  }
  c10::impl::getDeviceGuardImpl(first.type())
      ->setDevice({first.type(), static_cast<at::DeviceIndex>(index)});
  return ok_status();
}

void finish_work(at::Device device) {
  if (!device.is_cpu())
    c10::impl::getDeviceGuardImpl(device.type())->synchronizeDevice(device.index());
}

}  // namespace braid::inline device
