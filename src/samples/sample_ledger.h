// How many samples each call of a step has computed beside how many it had to: a sample that no
// rank computed, or two did, is an error that names the call, whatever lists and partitions say.
// Plain values; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace braid::inline samples {

class SampleLedger {
 public:
  struct Entry {
    int64_t expected = 0;  // of all ranks together
    int64_t computed = 0;
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  using Entries = std::map<std::string, Entry>;  // by call

  void begin_step() { entries_.clear(); }
  // What all ranks of a call have to compute more; each of them says the same.
  void expect(const std::string& call, int64_t samples) { entries_[call].expected += samples; }
  // What this rank has computed. Of ranks that compute a sample together one says so.
  void computed(const std::string& call, int64_t samples) { entries_[call].computed += samples; }
  const Entries& entries() const { return entries_; }

  // Adds another rank's.
  static void merge(const Entries& more, Entries* all);
  // What is wrong where a call did not compute each of its samples once; else "".
  static std::string fault(const Entries& all);

 private:
  Entries entries_;
};

}  // namespace braid::inline samples
