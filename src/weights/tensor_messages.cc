#include "weights/tensor_messages.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <cstring>
#include <map>
#include <set>

#include "base/json.h"
#include "base/text.h"
#include "device/device_copy.h"
#include "nn/model_parts.h"

namespace braid::inline weights {
namespace {

constexpr int32_t kStateChannel = 4;
using Tensors = std::vector<std::pair<std::string, at::Tensor>>;

Json table_of(const Tensors& tensors) {
  Json out = Json::array();
  for (const auto& [name, tensor] : tensors)
    out.push_back({name, tensor.sizes().vec(), static_cast<int>(tensor.scalar_type())});
  return out;
}

Status send_all(const Tensors& tensors, Communicator& everyone) {
  for (const auto& [name, tensor] : tensors)
    BRAID_TRY(everyone.send(to_host(tensor).contiguous(), 0, kStateChannel, name).wait());
  return ok_status();
}

Result<Tensors> receive_all(const Json& table, int64_t from, Communicator& everyone) {
  Tensors out;
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

Result<RoleTensors> whole_tensors(const Model& model, const RoleTensors& slices) {
  RoleTensors out;
  out.updates = slices.updates, out.skipped = slices.skipped;
  BRAID_ASSIGN(out.weights, gather_slices(model, slices.weights));
  std::map<std::string, Tensors> by_state;  // "exp_avg" and so on: named as the parameters
  for (const auto& [name, tensor] : slices.moments) {
    const size_t dot = name.rfind('.');
    by_state[name.substr(dot)].emplace_back(name.substr(0, dot), tensor);
  }
  for (const auto& [state, tensors] : by_state) {
    BRAID_ASSIGN(const Tensors whole, gather_slices(model, tensors));
    for (const auto& [name, tensor] : whole) out.moments.emplace_back(name + state, tensor);
  }
  return out;
}

Result<RoleTensors> pass_to_first(const RoleTensors& tensors, int64_t from,
                                  Communicator& everyone) {
  const int64_t rank = everyone.members()[everyone.index()];
  if (rank == from) {
    const Json table = {{"weights", table_of(tensors.weights)},
                        {"moments", table_of(tensors.moments)},
                        {"updates", tensors.updates},
                        {"skipped", tensors.skipped}};
    BRAID_TRY(send_text(table.dump(), everyone));
    BRAID_TRY(send_all(tensors.weights, everyone));
    BRAID_TRY(send_all(tensors.moments, everyone));
  }
  RoleTensors out;
  if (rank != 0) return out;
  BRAID_ASSIGN(const std::string text, receive_text(from, everyone));
  const Json table = Json::parse(text);
  BRAID_ASSIGN(out.weights, receive_all(table["weights"], from, everyone));
  BRAID_ASSIGN(out.moments, receive_all(table["moments"], from, everyone));
  out.updates = table["updates"].get<int64_t>();
  out.skipped = table["skipped"].get<int64_t>();
  return out;
}

void append_new(const RoleTensors& part, RoleTensors* all) {
  const auto add = [](const Tensors& from, Tensors* to) {
    std::set<std::string> known;
    for (const auto& [name, tensor] : *to) known.insert(name);
    for (const auto& [name, tensor] : from)
      if (known.count(name) == 0) to->emplace_back(name, tensor);
  };
  add(part.weights, &all->weights);
  add(part.moments, &all->moments);
  all->updates = part.updates, all->skipped = part.skipped;
}

}  // namespace braid::inline weights
