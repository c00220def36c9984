#include "serve/protocol/refused_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/protocol/testing/refusal.h"

namespace espalier {
namespace {

using testing::AllOf;
using testing::HasSubstr;

ApiError asked_for(const std::string& members) {
  const JsonBody body("{" + members + "}");
  return refusal([&] { refuse_unsupported_fields(body.root()); });
}

TEST(RefusedFields, WhatWouldChangeTheTextIsRefusedByName) {
  const std::pair<const char*, const char*> asked[] = {
      {"tools", R"([{"type": "function"}])"},
      {"tool_choice", R"("required")"},
      {"tool_choice", R"({"type": "function"})"},
      {"functions", R"([{"name": "f"}])"},
      {"response_format", R"({"type": "json_object"})"},
      {"response_format", R"({"type": "json_schema", "json_schema": {}})"},
      {"response_format", R"("text")"},
      {"grammar", R"("root ::= x")"},
      {"json_schema", R"({"type": "object"})"},
      {"structured_outputs", R"({"regex": "x"})"},
      {"guided_choice", R"(["a"])"},
      {"suffix", R"("end")"},
      {"best_of", "2"},
      {"use_beam_search", "true"},
      {"audio", R"({"voice": "x"})"},
      {"modalities", R"(["text", "audio"])"},
      {"chat_template", R"("{{ x }}")"},
      {"bad_words", R"(["x"])"},
      {"skip_special_tokens", "false"},
      {"typical_p", "0.5"},
      {"mirostat", "2"},
      {"xtc_probability", R"("x")"},
      {"truncate_prompt_tokens", "5"},
      {"top_n_sigma", "1"},
      {"samplers", R"(["top_k"])"},
      {"repeat_last_n", "64"},
      {"t_max_predict_ms", "100"},
      {"lora", R"([{"id": 0, "scale": 1}])"},
      {"add_special_tokens", "false"},
  };
  for (const auto& [name, value] : asked) {
    const ApiError error = asked_for(std::string("\"") + name + "\": " + value);
    EXPECT_EQ(error.status, 400) << name << value;
    EXPECT_EQ(error.param, name);
    EXPECT_THAT(error.message, AllOf(HasSubstr(name), HasSubstr("not supported")));
  }
}

TEST(RefusedFields, WhatAsksForNothingPasses) {
  EXPECT_EQ(asked_for(R"("tools": [], "tool_choice": "auto", "functions": [], "response_format": {"type": "text"},
      "grammar": "", "json_schema": {}, "structured_outputs": null, "suffix": "", "best_of": 1, "use_beam_search": false,
      "audio": null, "modalities": ["text"], "chat_template": null, "bad_words": [], "allowed_token_ids": null,
      "skip_special_tokens": true, "truncate_prompt_tokens": -1, "mirostat": 0, "typical_p": 1.0, "dynatemp_range": 0.0,
      "xtc_probability": 0, "dry_multiplier": 0, "top_n_sigma": -1, "samplers": [], "repeat_last_n": -1,
      "t_max_predict_ms": 0, "lora": [], "add_special_tokens": true)")
                .status,
            0);
}

TEST(RefusedFields, ToolsThatMayNotBeCalledPass) {
  EXPECT_EQ(asked_for(R"("tools": [{"type": "function"}], "tool_choice": "none")").status, 0);
  EXPECT_EQ(asked_for(R"("functions": [{"name": "f"}], "function_call": "none")").status, 0);
  EXPECT_EQ(asked_for(R"("tools": [{"type": "function"}], "tool_choice": "auto")").status, 400);
}

}  // namespace
}  // namespace espalier
