#include "base/status.h"

#include <cstdio>
#include <cstdlib>

namespace braid::inline base {
namespace {
std::string& check_context() {
  static std::string context;
  return context;
}
}  // namespace

const char* code_name(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kInvalidInput:
      return "invalid input";
    case Code::kNotFound:
      return "not found";
    case Code::kInfeasible:
      return "infeasible";
    case Code::kIo:
      return "input/output";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kDeadline:
      return "deadline";
    case Code::kOutOfMemory:
      return "out of memory";
    case Code::kDataLoss:
      return "data loss";
    case Code::kStopped:
      return "stopped";
  }
  return "unknown";
}

int exit_code(Code code) {
  switch (code) {
    case Code::kOk:
      return 0;
    case Code::kInvalidInput:
    case Code::kNotFound:
    case Code::kInfeasible:
      return 2;
    default:
      return 1;
  }
}

Status Status::at(const std::string& where) const {
  return ok() ? *this : Status(code_, where + ": " + message_);
}

Status invalid_input(std::string message) { return {Code::kInvalidInput, std::move(message)}; }
Status not_found(std::string message) { return {Code::kNotFound, std::move(message)}; }
Status io_error(std::string message) { return {Code::kIo, std::move(message)}; }

void set_check_context(std::string context) { check_context() = std::move(context); }

void check_failed(const char* file, int line, const char* what, const std::string& message) {
  const std::string& context = check_context();
  std::fprintf(stderr, "braid: internal error%s%s at %s:%d: %s: %s\n",
               context.empty() ? "" : " in ", context.c_str(), file, line, what, message.c_str());
  std::abort();
}

}  // namespace braid::inline base
