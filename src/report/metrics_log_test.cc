#include "report/metrics_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "base/text.h"
#include "host/file.h"

namespace braid {
namespace {

TEST(MetricsLog, AppendsRowsAndDropsThoseThatAResumedRunRepeats) {
  const std::string folder = cat(testing::TempDir(), "/braid_metrics_", ::getpid());
  MetricsLogOptions options{folder, true, false, 4};
  {
    auto log = MetricsLog::open(options, 0);
    ASSERT_TRUE(log.ok());
    for (int64_t step = 0; step < 3; ++step)
      ASSERT_TRUE(log->write(step, {{"a", step * 0.5}, {"b", NAN}}).ok());
    ASSERT_TRUE(log->write_sample({{"step", 0}, {"response", "x"}}).ok());
  }
  auto resumed = MetricsLog::open(options, 2);
  ASSERT_TRUE(resumed->write(2, {{"a", 7.0}}).ok());
  EXPECT_EQ(*read_file(join_path(folder, "metrics.jsonl")),
            "{\"a\":0.0,\"b\":null,\"step\":0}\n{\"a\":0.5,\"b\":null,\"step\":1}\n{\"a\":7.0,"
            "\"step\":2}\n");
  EXPECT_EQ(*read_file(join_path(folder, "samples.jsonl")), "{\"response\":\"x\",\"step\":0}\n");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace braid
