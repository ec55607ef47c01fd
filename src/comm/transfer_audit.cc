#include "comm/transfer_audit.h"

#include <set>

#include "base/status.h"
#include "base/text.h"

namespace braid::inline comm {
namespace {

bool audits = false;
StepAudit* open_step = nullptr;
int accounted_scopes = 0;

}  // namespace

void check_transfers() { audits = true; }
bool checks_transfers() { return audits; }

std::string transfer_differences(const TransferCounts& listed, const TransferCounts& sent) {
  std::set<TransferKind> kinds;
  for (const TransferCounts* counts : {&listed, &sent})
    for (const auto& [kind, count] : *counts) kinds.insert(kind);
  const auto count_of = [](const TransferCounts& counts, const TransferKind& kind) {
    const auto found = counts.find(kind);
    return found == counts.end() ? int64_t{0} : found->second;
  };
  std::string out;
  for (const TransferKind& kind : kinds) {
    const int64_t expected = count_of(listed, kind), counted = count_of(sent, kind);
    if (expected != counted)
      out += cat(out.empty() ? "" : "; ", transfer_text(kind, counted), ", listed ", expected);
  }
  return out;
}

StepAudit::StepAudit() {
  if (!audits) return;
  open_step = this;
  watch_.emplace(&sent_);
}
StepAudit::~StepAudit() {
  if (open_step == this) open_step = nullptr;
}

void StepAudit::settle(const std::string& what) {
  const std::string apart = transfer_differences(accounted_, sent_);
  BRAID_CHECK(apart.empty(), cat(what, " sends what is in no list: ", apart));
}

AccountedFor::AccountedFor() {
  if (accounted_scopes++ == 0 && open_step != nullptr) watch_.emplace(&open_step->accounted_);
}
AccountedFor::~AccountedFor() { --accounted_scopes; }

TransferAudit TransferAudit::forgotten() {
  TransferAudit out;
  out.forgotten_ = true;
  return out;
}

TransferAudit TransferAudit::begin() {
  TransferAudit out;
  out.on_ = audits;
  return out;
}

void TransferAudit::expect(const TransferKind& kind, int64_t count) {
  if (on_ && count != 0) expected_[kind] += count;
}

void TransferAudit::count(const TransferCounts& sent) {
  for (const auto& [kind, count] : sent)
    if (on_) counted_[kind] += count;
}

void TransferAudit::expect(const TransferCounts& listed) {
  for (const auto& [kind, count] : listed) expect(kind, count);
}

void TransferAudit::settle(const std::string& what) {
  const std::string apart = transfer_differences(expected_, counted_);
  BRAID_CHECK(apart.empty(), cat(what, " sends other than its list says: ", apart));
  expected_.clear();
  counted_.clear();
}

Status audited(const std::string& what, const std::function<TransferCounts()>& listed,
               const std::function<Status()>& run) {
  TransferAudit audit = TransferAudit::begin();
  if (audit.on()) audit.expect(listed());
  {
    const TransferAudit::Counting counting(audit);
    BRAID_TRY(run());
  }
  audit.settle(what);
  return ok_status();
}

}  // namespace braid::inline comm
