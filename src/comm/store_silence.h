// Notices that the store of the job does not answer: requests to it have no deadline of their own,
// so that a rank which asks a server that is stopped, or whose machine is lost, would wait for
// ever. A thread counts how long one look at the store takes. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace braid::inline comm {

struct SilenceOptions {
  double interval_s = 1, quiet_s = 5;   // between two looks; then named in the log
  double lost_s = 25, stopped_s = 300;  // then given up, as a rank (comm/watchdog.h)
  std::string server = "the launcher";  // who serves it
};

class StoreSilence {
 public:
  // `give_up` is told the cause, in the thread, once; it ends the process.
  StoreSilence(SilenceOptions options, std::function<void(const std::string& cause)> give_up);
  ~StoreSilence();

  // While one of these exists the store is asked.
  class Asking {
   public:
    explicit Asking(StoreSilence& of) : of_(of) { of_.begin(); }
    ~Asking() { of_.end(); }
    Asking(const Asking&) = delete;
    Asking& operator=(const Asking&) = delete;

   private:
    StoreSilence& of_;
  };

  // The process_identity() of the server; "": nobody knows. Of one that is seen to be stopped the
  // limit is another.
  void set_process(const std::string& identity);

 private:
  void begin();
  void end();
  void run();
  void judge(double silent_s);

  const SilenceOptions options_;
  const std::function<void(const std::string&)> give_up_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::string process_;
  bool asking_ = false, stop_ = false, named_ = false;
  double silent_s_ = 0;  // of the open look, as this process has run meanwhile
  std::thread thread_;
};

}  // namespace braid::inline comm
