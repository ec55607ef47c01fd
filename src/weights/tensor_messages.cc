#include "weights/tensor_messages.h"

#include <ATen/ops/empty.h>

#include "base/json.h"
#include "comm/rank_texts.h"
#include "device/device_copy.h"

namespace braid::inline weights {
namespace {

constexpr const char* kTable = "table of tensors";

Json table_of(const NamedTensors& tensors) {
  Json out = Json::array();
  for (const auto& [name, tensor] : tensors)
    out.push_back({name, tensor.sizes().vec(), static_cast<int>(tensor.scalar_type())});
  return out;
}

Status send_all(const NamedTensors& tensors, Communicator& everyone) {
  for (const auto& [name, tensor] : tensors)
    BRAID_TRY(everyone.send(to_host(tensor).contiguous(), 0, kTextChannel, name).wait());
  return ok_status();
}

Result<NamedTensors> receive_all(const Json& table, int64_t from, Communicator& everyone) {
  NamedTensors out;
  for (const Json& entry : table) {
    const at::Tensor room = at::empty(entry[1].get<std::vector<int64_t>>(),
                                      static_cast<at::ScalarType>(entry[2].get<int>()));
    const auto name = entry[0].get<std::string>();
    BRAID_TRY(everyone.receive(room, from, kTextChannel, name).wait());
    out.emplace_back(name, room);
  }
  return out;
}

}  // namespace

Result<NamedTensors> pass_to_first(const NamedTensors& tensors, int64_t from,
                                   Communicator& everyone) {
  const int64_t rank = everyone.members()[everyone.index()];
  if (rank == from) {
    BRAID_TRY(send_text(table_of(tensors).dump(), 0, everyone, kTable));
    BRAID_TRY(send_all(tensors, everyone));
  }
  if (rank != 0) return NamedTensors();
  BRAID_ASSIGN(const std::string text, receive_text(from, everyone, kTable));
  return receive_all(Json::parse(text), from, everyone);
}

}  // namespace braid::inline weights
