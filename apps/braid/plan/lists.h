// The names that `braid plan` knows: braid plan --list-gpus, --list-models.
#pragma once

namespace braid {

// A line for each device of the catalogue: its name, memory, peak and links.
void list_gpus();
// A line for each model size of the catalogue: its name, layers, width and parameters.
void list_models();

}  // namespace braid
