// What a configuration of another framework costs and which changes of its keys would help, as text
// and as JSON. Pure.
#pragma once

#include <string>
#include <vector>

#include "advise/foreign_changes.h"
#include "base/json.h"

namespace braid::inline advise {

std::string priced_text(const PricedImport& priced);
// `priced`: how many configurations were.
std::string changes_text(const Framework& framework, const ForeignKeys& keys, const Verdict& now,
                         const std::vector<KeyChange>& changes, int64_t priced);
// `script_way`: how a launch script was read; "": it was none.
Json import_json(const Framework& framework, const PricedImport& now, const std::string& script_way,
                 const std::vector<KeyChange>& changes);

}  // namespace braid::inline advise
