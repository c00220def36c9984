#include "base/sha256.h"

#include <gtest/gtest.h>

#include <string_view>

namespace espalier {
namespace {

TEST(Sha256, MatchesThePublishedVectors) {
  const std::string_view abc = "abc";
  EXPECT_EQ(sha256(std::as_bytes(std::span(abc))), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Sha256, DoesNotDependOnHowTheBytesAreCut) {
  const std::string_view text = "a tree trained flat against a wall";
  Sha256 hash;
  hash.update(std::as_bytes(std::span(text.substr(0, 5))));
  hash.update(std::as_bytes(std::span(text.substr(5))));
  EXPECT_EQ(hash.finish(), sha256(std::as_bytes(std::span(text))));
}

}  // namespace
}  // namespace espalier
