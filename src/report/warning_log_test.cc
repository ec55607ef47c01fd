#include "report/warning_log.h"

#include <gtest/gtest.h>

#include "base/log.h"
#include "host/file.h"
#include "report/json_rows.h"
#include "report/testing.h"

namespace braid::inline report {
namespace {

std::vector<Json> rows_in(const std::string& folder) {
  return *parse_rows(*read_file(join_path(folder, kWarningsFile)), "rows");
}

TEST(WarningLog, KeepsWarningsFromBeforeAndAfterThereIsAFolder) {
  const std::string folder = fresh_folder("warnings");
  {
    WarningLog log;
    log_warning("early");
    log_info("no warning");
    ASSERT_TRUE(log.open(folder, 3).ok());
    log_warning("at three");
    log.begin_step(4);
    log_warning("at four");
  }
  log_warning("nobody listens");
  const std::vector<Json> expected = {{{"step", 3}, {"text", "early"}},
                                      {{"step", 3}, {"text", "at three"}},
                                      {{"step", 4}, {"text", "at four"}}};
  EXPECT_EQ(rows_in(folder), expected);
  WarningLog resumed;
  log_warning("again");
  ASSERT_TRUE(resumed.open(folder, 4).ok());
  EXPECT_EQ(rows_in(folder).back(), Json({{"step", 4}, {"text", "again"}}));
  EXPECT_EQ(rows_in(folder).size(), 3u) << "that of step 4 is repeated";
}

TEST(WarningLog, IsBounded) {
  const std::string folder = fresh_folder("many_warnings");
  WarningLog log;
  ASSERT_TRUE(log.open(folder, 0).ok());
  for (int i = 0; i < 300; ++i) log_warning("w");
  ASSERT_EQ(rows_in(folder).size(), 200u);
  EXPECT_NE(rows_in(folder).back()["text"], "w");
}

}  // namespace
}  // namespace braid::inline report
