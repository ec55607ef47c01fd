// Who else is told what is logged. Thread-safe.
#pragma once

#include <string>

#include "base/log.h"

namespace braid::inline base {

// Called with each message that is not dropped, from the thread that logs; threads may do so at
// once. It must not log.
using LogObserver = void (*)(LogLevel level, const std::string& message);

// From here on; null: nobody.
void set_log_observer(LogObserver told);

}  // namespace braid::inline base
