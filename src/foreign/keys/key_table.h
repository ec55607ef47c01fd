// The table behind keys.cc: names of other frameworks, ours, units and conversions.
#pragma once

#include <span>
#include <vector>

#include "foreign/keys/key_values.h"

namespace braid::inline foreign_keys {

struct ForeignKey {
  // End of the dotted path, '-' written as '_'. "group.*" is every key below a group of this name,
  // "name_*" every key whose last name begins so.
  const char* theirs;
  const char* framework;  // who uses it
  const char* ours;       // "optim.ROLE.lr": ROLE becomes actor or critic; "" = no counterpart
  const char* note;       // unit, or what to know; without a counterpart: what happens instead
  ConvertKey convert = nullptr;  // null: the value stays as it is
};

const std::vector<ForeignKey>& foreign_key_table();

// Its parts, in its order.
std::span<const ForeignKey> keys_of_steps();
std::span<const ForeignKey> keys_of_models();
std::span<const ForeignKey> keys_of_learning();
std::span<const ForeignKey> keys_of_machines();

}  // namespace braid::inline foreign_keys
