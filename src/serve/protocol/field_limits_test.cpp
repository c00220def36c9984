// Every limit of a field at its edges: what is just inside is read, what is just outside is refused by name.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "serve/protocol/chat_request.h"
#include "serve/protocol/completion_request.h"
#include "serve/protocol/testing/refusal.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

std::string repeated(const std::string& item, std::int64_t count) {
  std::string list;
  for (std::int64_t i = 0; i < count; ++i) list += (i == 0 ? "" : ", ") + item;
  return "[" + list + "]";
}

std::string text_of(std::int64_t bytes) {
  return "\"" + std::string(static_cast<std::size_t>(bytes), 'x') + "\"";
}

std::string biases(std::int64_t count) {
  std::string members;
  for (std::int64_t i = 0; i < count; ++i) members += fmt::format("{}\"{}\": 1", i == 0 ? "" : ", ", i);
  return "{" + members + "}";
}

std::string number(std::int64_t value) {
  return std::to_string(value);
}

// A field whose size or value may be anything from `least` to `most`.
struct Limit {
  std::string field;
  std::int64_t least, most;
  std::function<std::string(std::int64_t)> value = number;
  bool counts = false;  // it is the size that is limited
};

const std::vector<Limit>& shared_limits() {
  static const std::vector<Limit> limits = {
      {"n", 1, 16},
      {"temperature", 0, 2},
      {"presence_penalty", -2, 2},
      {"frequency_penalty", -2, 2},
      {"min_p", 0, 1},
      {"repetition_penalty", 1, 10'000, [](std::int64_t n) { return fmt::format("{}.{:02}", n / 100, n % 100); }},
      {"priority", -10, 10},
      {"stop", 0, 16, [](std::int64_t n) { return repeated("\"a\"", n); }, true},
      {"stop", 1, 256, text_of},
      {"stop_token_ids", 0, 1024, [](std::int64_t n) { return repeated("7", n); }, true},
      {"cache_salt", 0, 256, text_of, true},
      {"logit_bias", 0, 1024, biases, true},
      {"logit_bias", -100, 100, [](std::int64_t bias) { return fmt::format("{{\"5\": {}}}", bias); }},
      {"speculation", 1, 64, [](std::int64_t nodes) { return fmt::format("{{\"nodes\": {}}}", nodes); }},
      {"speculation", 1, 16, [](std::int64_t depth) { return fmt::format("{{\"depth\": {}}}", depth); }},
  };
  return limits;
}

void expect_edges(const Limit& limit, const std::string& others, const std::function<void(const std::string&)>& read) {
  const auto body = [&](std::int64_t value) {
    return fmt::format("{{{}\"{}\": {}}}", others, limit.field, limit.value(value));
  };
  for (const std::int64_t inside : {limit.least, limit.least + 1, limit.most - 1, limit.most})
    EXPECT_NO_THROW(read(body(inside))) << limit.field << ": " << inside;
  for (const std::int64_t outside : {limit.least - 1, limit.most + 1}) {
    if (outside < 0 && limit.counts) continue;  // there is nothing below none
    const ApiError error = refusal([&] { read(body(outside)); });
    EXPECT_EQ(error.status, 400) << limit.field << ": " << outside;
    EXPECT_THAT(error.message, HasSubstr(limit.field)) << outside;
  }
}

TEST(FieldLimits, OfCompletions) {
  const auto read = [](const std::string& body) { parse_completion_request(body); };
  for (const Limit& limit : shared_limits()) expect_edges(limit, "\"prompt\": \"a\", ", read);
  expect_edges({"logprobs", 0, 20}, "\"prompt\": \"a\", ", read);
  // An empty list is a prompt without tokens, which is refused where prompts become tokens.
  expect_edges({"prompt", 0, 64, [](std::int64_t n) { return repeated("\"a\"", n); }, true}, "", read);
}

TEST(FieldLimits, OfChats) {
  const auto read = [](const std::string& body) { parse_chat_request(body); };
  const std::string hello = R"("messages": [{"role": "user", "content": "hi"}], )";
  for (const Limit& limit : shared_limits()) expect_edges(limit, hello, read);
  expect_edges({"top_logprobs", 0, 20}, hello + "\"logprobs\": true, ", read);
  const std::string message = R"({"role": "user", "content": "u"})";
  expect_edges({"messages", 1, 1024, [&](std::int64_t n) { return repeated(message, n); }}, "", read);
}

}  // namespace
}  // namespace espalier
