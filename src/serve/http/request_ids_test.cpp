#include "serve/http/request_ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace espalier {
namespace {

TEST(RequestIds, AreDigitsThatNeverComeAgain) {
  RequestIds ids;
  RequestIds of_another_server;
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::string id = ids.next();
    ASSERT_THAT(id, testing::MatchesRegex("[0-9a-f]+"));
    ASSERT_EQ(id.size(), 24u);
    ASSERT_TRUE(seen.insert(id).second);
    ASSERT_TRUE(seen.insert(of_another_server.next()).second);
  }
}

}  // namespace
}  // namespace espalier
