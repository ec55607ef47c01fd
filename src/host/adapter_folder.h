// Folders of adapters (PEFT). Reads folders; thread-safe.
#pragma once

#include <string>

namespace braid::inline host {

// True for a folder that holds adapter_config.json and no model of its own.
bool is_adapter_folder(const std::string& folder);

}  // namespace braid::inline host
