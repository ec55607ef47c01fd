#include "samples/sample_ledger.h"

#include <algorithm>

#include "base/text.h"

namespace braid::inline samples {

void SampleLedger::merge(const Entries& more, Entries* all) {
  for (const auto& [call, entry] : more) {
    Entry& sum = (*all)[call];
    sum.expected = std::max(sum.expected, entry.expected);
    sum.computed += entry.computed;
  }
}

std::string SampleLedger::fault(const Entries& all) {
  for (const auto& [call, entry] : all)
    if (entry.computed != entry.expected)
      return cat("call ", call, " computed ", entry.computed, " samples, not ", entry.expected,
                 ": ranks left some out, or computed some twice");
  return "";
}

}  // namespace braid::inline samples
