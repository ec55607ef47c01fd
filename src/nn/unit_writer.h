// For who writes the weights of a decoder tensor by tensor: where they are whole only while they
// are used (weight_keeper.h), those of one unit are at a time. Not thread-safe.
#pragma once

#include <string>

#include "nn/decoder.h"

namespace braid::inline nn {

class UnitWriter {
 public:
  // `anew`: all values will be written. Else those that are not stay as they are; all ranks write
  // alike then, and a failure of communication leaves as CommunicationFailure.
  UnitWriter(Decoder& decoder, bool anew) : decoder_(decoder), anew_(anew) {}
  ~UnitWriter() { close(); }
  UnitWriter(const UnitWriter&) = delete;
  UnitWriter& operator=(const UnitWriter&) = delete;

  // Before the tensor of this name is written.
  void enter(const std::string& name) {
    WeightKeeper* keeper = decoder_.keeper();
    if (keeper == nullptr || unit_ == decoder_.unit_of(name)) return;
    close();
    unit_ = decoder_.unit_of(name);
    anew_ ? keeper->open(unit_) : keeper->bring(unit_);
  }

 private:
  void close() {
    if (unit_ >= 0) decoder_.keeper()->close(unit_);
    unit_ = -1;
  }

  Decoder& decoder_;
  const bool anew_;
  int64_t unit_ = -1;
};

}  // namespace braid::inline nn
