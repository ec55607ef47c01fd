// Whether something stands in a list.
#pragma once

#include <algorithm>

namespace braid::inline base {

template <typename List, typename Item>
bool contains(const List& list, const Item& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

}  // namespace braid::inline base
