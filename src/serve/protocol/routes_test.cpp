#include "serve/protocol/routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/protocol/testing/refusal.h"

namespace espalier {
namespace {

TEST(Routes, EveryPathIsFoundByItsMethod) {
  for (const Route& route : routes()) {
    const auto found = find_route(route.method, route.path);
    ASSERT_TRUE(found) << route.path;
    EXPECT_EQ(found->endpoint, route.endpoint);
    EXPECT_EQ(found->needs_key, route.needs_key);
  }
}

TEST(Routes, OnlyHealthVersionDescriptionAndPageAreOpen) {
  for (const Route& route : routes()) {
    const bool open = route.endpoint == Endpoint::health || route.endpoint == Endpoint::version ||
                      route.endpoint == Endpoint::openapi || route.endpoint == Endpoint::page;
    EXPECT_EQ(route.needs_key, !open) << route.path;
  }
}

TEST(Routes, HeadIsGet) {
  EXPECT_EQ(find_route("HEAD", "/health")->endpoint, Endpoint::health);
}

TEST(Routes, AModelsNameMayHaveSlashes) {
  EXPECT_EQ(find_route("GET", "/v1/models/owner/name")->id, "owner/name");
  EXPECT_EQ(find_route("GET", "/v1/models")->endpoint, Endpoint::models);
  EXPECT_FALSE(find_route("GET", "/v1/models/"));
}

TEST(Routes, WhatIsNotThereIsNotFound) {
  for (const char* path : {"/v1/responses", "/v1/messages", "/v1/embeddings", "/completion", "/api/chat", "",
                           "/health/", "//health", "/v1", "/HEALTH"})
    EXPECT_FALSE(find_route("GET", path)) << path;
}

TEST(Routes, AnotherMethodIsToldWhichOnesAreAllowed) {
  const ApiError get = refusal([] { find_route("POST", "/health"); });
  EXPECT_EQ(get.status, 405);
  EXPECT_EQ(get.allow, "GET, HEAD");
  const ApiError post = refusal([] { find_route("GET", "/v1/completions"); });
  EXPECT_EQ(post.status, 405);
  EXPECT_EQ(post.allow, "POST");
  EXPECT_EQ(refusal([] { find_route("HEAD", "/tokenize"); }).status, 405);
}

}  // namespace
}  // namespace espalier
