// Something that ranks do together and that can be begun again, where memory may run out.
// Thread-safe.
#pragma once

#include <exception>
#include <string>

#include "base/status.h"
#include "comm/communicator.h"
#include "device/tensor_memory.h"

namespace braid::inline passes {

// Does it; where memory runs out in it, once more after let_go(why) has made room. REQUIRES: what
// `act` has begun with other ranks it does not begin again.
template <typename Act, typename LetGo>
Status with_second_try(const Act& act, const LetGo& let_go) {
  try {
    return act();
  } catch (const CommunicationFailure&) {
    throw;
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    let_go(what_ran_out(error));
  }
  return act();
}

}  // namespace braid::inline passes
