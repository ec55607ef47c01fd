// Status and Result<T>: how an expected failure (bad input, missing file, peer gone, out of memory,
// infeasible plan) travels. A bug in Braid is a BRAID_CHECK instead, which aborts. Values are
// immutable after construction and may be copied between threads.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace braid::inline base {

// What the caller should do, not what went wrong; the exit code of the program follows from it.
enum class Code {
  kOk,
  kInvalidInput,  // the user must change a config, an argument or a file (exit code 2)
  kNotFound,      // the user named something that does not exist (exit code 2)
  kInfeasible,    // no solution under the given limits; raise a limit (exit code 2)
  kIo,            // reading or writing failed; check disk and permissions (exit code 1)
  kUnavailable,   // a peer or service is gone; retry or restart it (exit code 1)
  kDeadline,      // a wait ran past its deadline (exit code 1)
  kOutOfMemory,   // reduce a budget (exit code 1)
  kDataLoss,      // stored state is damaged; use an older one (exit code 1)
  kStopped,       // ended on request or by a policy, state is consistent (exit code 1)
};

const char* code_name(Code code);

// The process exit code for a failure of this kind: 0, 1 or 2.
int exit_code(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same failure with "where: " put in front; no effect on success.
  Status at(const std::string& where) const;

  friend bool operator==(const Status&, const Status&) = default;

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

inline Status ok_status() { return {}; }
Status invalid_input(std::string message);
Status not_found(std::string message);
Status io_error(std::string message);

// Either a value or the failure that prevented it. REQUIRES for value access: ok(). A temporary
// gives its value away by value, so that `for (x : *f())` does not dangle.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: implicit by design
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: implicit by design

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  T& value() & { return *checked(); }
  const T& value() const& { return *const_cast<Result*>(this)->checked(); }
  T value() && { return std::move(*checked()); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // The same result with "where: " put in front of a failure.
  Result at(const std::string& where) && {
    return ok() ? std::move(*this) : Result(status_.at(where));
  }

 private:
  std::optional<T>& checked();
  std::optional<T> value_;
  Status status_;
};

// Prints "WHAT: MESSAGE" with file and line and aborts; for broken invariants only.
[[noreturn]] void check_failed(const char* file, int line, const char* what,
                               const std::string& message);

template <typename T>
std::optional<T>& Result<T>::checked() {
  if (!value_) check_failed(__FILE__, __LINE__, "value of a failed result", status_.message());
  return value_;
}

// Text put in front of every check failure of this process, such as "rank 0, actor, step 12"; set
// by the runtime.
void set_check_context(std::string context);

}  // namespace braid::inline base

#define BRAID_CHECK(condition, message)                               \
  do {                                                                \
    if (!(condition)) [[unlikely]]                                    \
      ::braid::check_failed(__FILE__, __LINE__, #condition, message); \
  } while (false)

// Returns the failure of a Status expression from the enclosing function.
#define BRAID_TRY(expression)                                                                 \
  do {                                                                                        \
    if (::braid::Status braid_status = (expression); !braid_status.ok()) return braid_status; \
  } while (false)

#define BRAID_CONCAT_INNER(a, b) a##b
#define BRAID_CONCAT(a, b) BRAID_CONCAT_INNER(a, b)

// BRAID_ASSIGN(auto x, f()): declares or sets the left side from a Result, or returns its failure.
#define BRAID_ASSIGN(left, expression) \
  BRAID_ASSIGN_INNER(BRAID_CONCAT(braid_result_, __LINE__), left, expression)
#define BRAID_ASSIGN_INNER(temporary, left, expression) \
  auto temporary = (expression);                        \
  if (!temporary.ok()) return temporary.status();       \
  left = std::move(temporary).value()
