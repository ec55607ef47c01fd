#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <thread>
#include <vector>

namespace braid::inline base {
namespace {

using ::testing::MatchesRegex;

std::string logged(const std::function<void()>& act) {
  ::testing::internal::CaptureStderr();
  act();
  return ::testing::internal::GetCapturedStderr();
}

TEST(Log, ALineIsTimeLevelAndMessageWithoutColorsOutsideATerminal) {
  EXPECT_THAT(logged([] { log_info("a {} b %s"); }),
              MatchesRegex("[0-2][0-9]:[0-5][0-9]:[0-6][0-9] info a \\{\\} b %s\n"));
  EXPECT_THAT(logged([] { log_warning("w"); }), MatchesRegex("[0-9:]+ warning w\n"));
  EXPECT_THAT(logged([] { log_error("e"); }), MatchesRegex("[0-9:]+ error e\n"));
}

TEST(Log, LinesBelowTheLevelAreDropped) {
  EXPECT_EQ(logged([] { log_debug("hidden"); }), "");
  set_log_level(LogLevel::kDebug);
  EXPECT_THAT(logged([] { log_debug("shown"); }), MatchesRegex("[0-9:]+ debug shown\n"));
  set_log_level(LogLevel::kError);
  EXPECT_EQ(logged([] { log_warning("hidden"); }), "");
  set_log_level(LogLevel::kInfo);
}

TEST(Log, LinesOfSeveralThreadsDoNotMix) {
  constexpr int kThreads = 4, kLines = 200;
  const std::string message(300, 'x');
  std::istringstream lines(logged([&] {
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([&] {
        for (int line = 0; line < kLines; ++line) log_info(message);
      });
    for (std::thread& thread : threads) thread.join();
  }));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count)
    EXPECT_THAT(line, MatchesRegex("[0-9:]+ info x+")) << count;
  EXPECT_EQ(count, kThreads * kLines);
}

}  // namespace
}  // namespace braid::inline base
