#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <span>

#include "base/testing/sanitized.h"
#include "base/untrusted_text.h"
#include "serve/protocol/testing/parse_any.h"
#include "serve/protocol/testing/tiny_server.h"

namespace espalier {
namespace {

using nlohmann::json;

// Every field, with a value that is accepted.
const char* const kChatBody = R"({"messages": [{"role": "system", "content": "be"}, {"role": "user", "content":
  [{"type": "text", "text": "hé"}]}, {"role": "assistant", "content": "so"}], "continue_final_message": true,
  "add_generation_prompt": false, "chat_template_kwargs": {"a": [1, {"b": null}]}, "model": "m", "max_tokens": 5,
  "max_completion_tokens": 6, "n_predict": 7, "min_tokens": 1, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1,
  "presence_penalty": 1, "frequency_penalty": -1, "repetition_penalty": 1.1, "logit_bias": {"5": -100}, "seed": -3, "n": 2,
  "stop": ["x", "yz"], "stop_token_ids": [4], "ignore_eos": false, "include_stop_str_in_output": true, "stream": true,
  "stream_options": {"include_usage": true, "continuous_usage_stats": true}, "cache_prompt": true, "cache_salt": "s",
  "priority": 0, "speculation": {"draft": "eagle3+ngram", "nodes": 8, "depth": 3, "tree": "chain"},
  "prediction": {"type": "content", "content": "ab"}, "timings_per_token": true, "return_token_ids": true, "metrics": true,
  "rounds": true, "receipt": true, "logprobs": true, "top_logprobs": 3, "tools": [], "response_format": {"type": "text"},
  "best_of": 1, "suffix": "", "user": "u"})";
const char* const kTextBody =
    R"({"prompt": ["a", "b€"], "echo": true, "logprobs": 1, "max_tokens": 1, "n": 2, "seed": 1234,
  "logit_bias": [[5, 1], ["a", -1]], "stop": "q", "speculation": false, "temperature": 0, "parse_special": true})";
const char* const kIdsBody = R"({"prompt": [[1, 2], [3]], "max_tokens": 4, "speculative.n_max": 0})";
const char* const kTokenizeBody =
    R"({"content": "a€", "add_special": true, "parse_special": false, "with_pieces": true})";
const char* const kDetokenizeBody = R"({"tokens": [1, 2, 271]})";

struct Sample {
  Endpoint endpoint;
  const char* body;
};
const Sample kSamples[] = {
    {Endpoint::chat_completions, kChatBody}, {Endpoint::completions, kTextBody},
    {Endpoint::completions, kIdsBody},       {Endpoint::tokenize, kTokenizeBody},
    {Endpoint::detokenize, kDetokenizeBody}, {Endpoint::apply_template, kChatBody},
    {Endpoint::input_tokens, kChatBody},
};

class HostileRequests : public ::testing::Test {
 protected:
  // Reads a body and goes as far as it leads. Nothing but an ApiError may come out.
  void send(Endpoint endpoint, const std::string& body) {
    AnyRequest request = parse_any_request(endpoint, body);
    try {
      std::visit([&](const auto& parsed) { go_on(endpoint, parsed); }, request);
    } catch (const ApiError& error) {
      check_error(error, body);
    }
  }

  void go_on(Endpoint, std::monostate) {}
  void go_on(Endpoint, const ApiError& error) { throw error; }
  void go_on(Endpoint, const ChatRequest& request) { check_plan(plan_chat(request, text_, settings_, 1)); }
  void go_on(Endpoint, const CompletionRequest& request) { check_plan(plan_completion(request, text_, settings_, 1)); }
  void go_on(Endpoint, const TokenizeRequest& request) {
    EXPECT_TRUE(json::accept(tokenize_response(request, text_, settings_)));
  }
  void go_on(Endpoint, const std::vector<std::int64_t>& tokens) {
    EXPECT_TRUE(json::accept(detokenize_response(tokens, text_, settings_)));
  }
  void go_on(Endpoint endpoint, const ChatPromptFields& prompt) {
    EXPECT_TRUE(json::accept(endpoint == Endpoint::apply_template ? apply_template_response(prompt, text_, settings_)
                                                                  : input_tokens_response(prompt, text_, settings_)));
  }

  void check_error(const ApiError& error, const std::string& body) {
    ++refused_;
    EXPECT_TRUE(error.status == 400 || error.status == 404) << error.status << " of " << body;
    EXPECT_TRUE(is_utf8(error.message)) << body;
    EXPECT_EQ(error.message.find('\n'), std::string::npos);
    EXPECT_LE(error.message.size(), kMostMessageBytes);
    EXPECT_TRUE(json::accept(error_json(error)));
  }

  // What is planned, the batch takes.
  void check_plan(const RequestPlan& plan) {
    ++planned_;
    EXPECT_EQ(std::ssize(plan.choices), plan.form.choices());
    for (const PlannedChoice& choice : plan.choices) {
      const std::vector<TokenId>& prompt = plan.prompts.at(static_cast<std::size_t>(choice.prompt)).tokens;
      EXPECT_NO_THROW(check_tokens(prompt, {settings_.context, settings_.vocabulary}));
      EXPECT_NO_THROW(check_options(choice.text.generate));
      EXPECT_LE(std::ssize(prompt) + choice.text.generate.max_tokens, settings_.context + 1);
    }
  }

  ModelText text_ = byte_text();
  ServerSettings settings_ = tiny_settings(text_);
  std::mt19937_64 random_{17};
  int refused_ = 0, planned_ = 0;
};

TEST_F(HostileRequests, TheSamplesAreAccepted) {
  for (const Sample& sample : kSamples) send(sample.endpoint, sample.body);
  EXPECT_EQ(refused_, 0);
  EXPECT_EQ(planned_, 3);
}

TEST_F(HostileRequests, DamagedBytesAreReadOrRefused) {
  constexpr std::string_view kInserted[] = {"\"",   "{",     "}",  "[",       "]",    ",",      ":",
                                            "null", "1e999", "-0", "\\u0000", "\xff", "\\ud83d"};
  for (int trial = 0; trial < 1000; ++trial) {
    const Sample& sample = kSamples[random_() % std::size(kSamples)];
    std::string body = sample.body;
    for (std::size_t edits = 1 + random_() % 3; edits > 0 && !body.empty(); --edits) {
      const std::size_t at = random_() % body.size();
      switch (random_() % 4) {
        case 0: body[at] = static_cast<char>(random_()); break;
        case 1: body.erase(at, 1 + random_() % 8); break;
        case 2: body.insert(at, kInserted[random_() % std::size(kInserted)]); break;
        default: body.resize(random_() % 8 == 0 ? at : body.size()); break;
      }
    }
    send(sample.endpoint, body);
  }
  EXPECT_GT(refused_, 500);
}

// Every value of a document, by its place.
void add_places(const json& value, const json::json_pointer& here, std::vector<json::json_pointer>& places) {
  places.push_back(here);
  if (value.is_object())
    for (const auto& [key, inner] : value.items()) add_places(inner, here / key, places);
  if (value.is_array())
    for (std::size_t i = 0; i < value.size(); ++i) add_places(value[i], here / i, places);
}

// Sanitizers look at code, not at values: there tests take every fifth of them.
constexpr int kChangeStep = kSanitized ? 5 : 1;

TEST_F(HostileRequests, WrongValuesAnywhereAreReadOrRefused) {
  int changed = 0;
  const json nested = json::parse(std::string(20, '[') + std::string(20, ']'));
  const json values[] = {nullptr,
                         true,
                         false,
                         0,
                         -1,
                         1,
                         5,
                         272,
                         2147483648,
                         INT64_MIN,
                         UINT64_MAX,
                         0.5,
                         -1e308,
                         1e308,
                         5.0,
                         "",
                         "text",
                         "auto",
                         "none",
                         "system",
                         std::string(300, 'x'),
                         "é\u2028\x7f\n",
                         json::array(),
                         json::array({1}),
                         json::array({"a"}),
                         json::array({json::array({1, 2})}),
                         json::object(),
                         {{"type", "text"}},
                         nested};
  for (const Sample& sample : std::span(kSamples).first(5)) {
    const json valid = json::parse(sample.body);
    std::vector<json::json_pointer> places;
    add_places(valid, json::json_pointer(), places);
    for (const json::json_pointer& place : places)
      for (const json& value : values) {
        if (++changed % kChangeStep != 0) continue;
        json body = valid;
        body[place] = value;
        send(sample.endpoint, body.dump());
      }
  }
  EXPECT_GT(refused_, 1000 / kChangeStep);
  EXPECT_GT(planned_, 300 / kChangeStep);
}

TEST_F(HostileRequests, ManyMembersAndElementsCostLittle) {
  std::string members = "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]", ids = "{\"prompt\": [1";
  for (int i = 0; i < 20'000; ++i) members += ", \"f" + std::to_string(i) + "\": 1";
  for (int i = 0; i < 200'000; ++i) ids += ",1";
  send(Endpoint::chat_completions, members + "}");
  send(Endpoint::completions, ids + "]}");
  EXPECT_EQ(planned_, 1);
  EXPECT_EQ(refused_, 1);
}

}  // namespace
}  // namespace espalier
