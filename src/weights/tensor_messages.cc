#include "weights/tensor_messages.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <cstring>

#include "base/json.h"
#include "base/text.h"
#include "device/device_copy.h"

namespace braid::inline weights {
namespace {

constexpr int32_t kStateChannel = 4;

Json table_of(const NamedTensors& tensors) {
  Json out = Json::array();
  for (const auto& [name, tensor] : tensors)
    out.push_back({name, tensor.sizes().vec(), static_cast<int>(tensor.scalar_type())});
  return out;
}

Status send_all(const NamedTensors& tensors, Communicator& everyone) {
  for (const auto& [name, tensor] : tensors)
    BRAID_TRY(everyone.send(to_host(tensor).contiguous(), 0, kStateChannel, name).wait());
  return ok_status();
}

Result<NamedTensors> receive_all(const Json& table, int64_t from, Communicator& everyone) {
  NamedTensors out;
  for (const Json& entry : table) {
    const at::Tensor room = at::empty(entry[1].get<std::vector<int64_t>>(),
                                      static_cast<at::ScalarType>(entry[2].get<int>()));
    const auto name = entry[0].get<std::string>();
    BRAID_TRY(everyone.receive(room, from, kStateChannel, name).wait());
    out.emplace_back(name, room);
  }
  return out;
}

// A text of any length.
Status send_text(const std::string& text, Communicator& everyone) {
  const at::Tensor size = at::tensor({static_cast<int64_t>(text.size())}, at::kLong);
  BRAID_TRY(everyone.send(size, 0, kStateChannel, "size of a table").wait());
  const at::Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::memcpy(bytes.data_ptr(), text.data(), text.size());
  return everyone.send(bytes, 0, kStateChannel, "table of tensors").wait();
}

Result<std::string> receive_text(int64_t from, Communicator& everyone) {
  const at::Tensor size = at::empty({1}, at::kLong);
  BRAID_TRY(everyone.receive(size, from, kStateChannel, "size of a table").wait());
  const at::Tensor bytes = at::empty({size.item<int64_t>()}, at::kByte);
  BRAID_TRY(everyone.receive(bytes, from, kStateChannel, "table of tensors").wait());
  return std::string(static_cast<const char*>(bytes.const_data_ptr()), bytes.numel());
}

}  // namespace

Result<NamedTensors> pass_to_first(const NamedTensors& tensors, int64_t from,
                                   Communicator& everyone) {
  const int64_t rank = everyone.members()[everyone.index()];
  if (rank == from) {
    BRAID_TRY(send_text(table_of(tensors).dump(), everyone));
    BRAID_TRY(send_all(tensors, everyone));
  }
  if (rank != 0) return NamedTensors();
  BRAID_ASSIGN(const std::string text, receive_text(from, everyone));
  return receive_all(Json::parse(text), from, everyone);
}

}  // namespace braid::inline weights
