#include "comm/failure.h"

#include "base/json.h"

namespace braid::inline comm {

std::string failure_record(const RankFailure& failure) {
  const Json json = {{"rank", failure.global_rank},
                     {"cause", failure.cause},
                     {"position", failure.position},
                     {"given_up", failure.given_up}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<RankFailure> parse_failure(std::string_view record) {
  BRAID_ASSIGN(const Json json, parse_json(record, "the record of a failure"));
  if (!json.is_object()) return invalid_input("the record of a failure is no object");
  RankFailure out;
  BRAID_ASSIGN(out.global_rank, json_field<int64_t>(json, "rank"));
  BRAID_ASSIGN(out.cause, json_field<std::string>(json, "cause"));
  BRAID_ASSIGN(out.position, json_field<std::string>(json, "position"));
  BRAID_ASSIGN(out.given_up, json_field<bool>(json, "given_up"));
  return out;
}

std::string failed_text(const RankFailure& failure) {
  if (failure.global_rank == kNoneAlone) return "the job is stuck";
  if (failure.global_rank == kLaunchersStore) return "the launcher's store failed";
  return cat("rank ", failure.global_rank, " failed");
}

std::string failure_text(const RankFailure& failure) {
  return cat(failed_text(failure), ": ", failure.cause,
             failure.position.empty() ? "" : cat(" (at: ", failure.position, ")"));
}

}  // namespace braid::inline comm
