#include "base/text_stream.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"

namespace espalier {
namespace {

TEST(TextStream, APipeIsReadToItsEnd) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "hello", 5), 5);
  ::close(ends[1]);
  EXPECT_EQ(read_text_stream(fmt::format("/dev/fd/{}", ends[0])), "hello");
  ::close(ends[0]);
}

TEST(TextStream, NoMoreIsReadThanAllowed) {
  EXPECT_THROW(read_text_stream("/dev/zero", 1 << 20), InputError);
}

TEST(TextStream, WhatCannotBeReadIsNamed) {
  EXPECT_THROW(read_text_stream("/"), InputError);
  EXPECT_THROW(read_text_stream("no/such/file"), InputError);
}

}  // namespace
}  // namespace espalier
