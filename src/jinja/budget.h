// What one rendering may use, so that a hostile template ends with an error rather than with the
// memory or the patience of its user. Belongs to one rendering, thus to one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"

namespace braid::jinja {

struct Limits {
  int64_t steps = 5'000'000;  // nodes evaluated, items visited, 64-byte pieces of text made
  int64_t text_bytes = int64_t{1} << 26;  // one text, thus the output as well
  int depth = 700;                        // of evaluation, calls of macros included
  int value_depth = 200;                  // of lists and dictionaries in each other
};

class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits) {}

  // Uses up steps; an error once none are left.
  Status spend(uint64_t steps);
  // Pays for a text that is about to be made; an error when it is too long.
  Status spend_text(uint64_t bytes);
  // Pays for bytes that are about to be put behind a text of this length.
  Status grow(uint64_t length, uint64_t bytes);
  // One level deeper, until leave().
  Status enter();
  void leave() { --depth_; }
  int depth() const { return depth_; }
  // Back to an earlier depth(), also out of what ended with an error.
  void leave_to(int depth) { depth_ = depth; }
  Status check_value_depth(int depth) const;

  // What is being written as text, so that a namespace that holds itself ends: false when this is
  // being written already, otherwise until end_writing().
  bool begin_writing(const void* value);
  void end_writing() { writing_.pop_back(); }

 private:
  Limits limits_;
  uint64_t used_ = 0;
  int depth_ = 0;
  std::vector<const void*> writing_;
};

}  // namespace braid::jinja
