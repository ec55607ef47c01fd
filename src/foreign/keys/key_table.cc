#include "foreign/keys/key_table.h"

namespace braid::inline foreign_keys {

const std::vector<ForeignKey>& foreign_key_table() {
  static const std::vector<ForeignKey>& table = *[] {
    auto* out = new std::vector<ForeignKey>();
    for (const auto part :
         {keys_of_steps(), keys_of_models(), keys_of_learning(), keys_of_machines()})
      out->insert(out->end(), part.begin(), part.end());
    return out;
  }();
  return table;
}

}  // namespace braid::inline foreign_keys
