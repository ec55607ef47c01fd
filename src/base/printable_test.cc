#include "base/printable.h"

#include <gtest/gtest.h>

namespace braid::inline base {
namespace {

TEST(Printable, ControlBytesAreShownAndLinesStay) {
  EXPECT_EQ(printable(std::string("a\0b\x1b[0m\n\tc", 10)), "a\\x00b\\x1b[0m\n\tc");
  EXPECT_EQ(printable("größer"), "größer");
}

TEST(Excerpt, IsOneLineOfWhatWasRead) {
  EXPECT_EQ(excerpt("12 x"), "12 x");
  EXPECT_EQ(excerpt(std::string("\x7f"
                                "ELF\0\xff",
                                6)),
            "\\x7fELF\\x00\\xff");
  EXPECT_EQ(excerpt("one\ntwo"), "one\\x0atwo");
  EXPECT_EQ(excerpt(std::string(100, 'a'), 10), std::string(10, 'a') + "...");
  EXPECT_EQ(excerpt("abö", 3), "ab...");  // no half of a character
}

}  // namespace
}  // namespace braid::inline base
