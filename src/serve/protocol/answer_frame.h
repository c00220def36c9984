// What all objects and events of one response have in common.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "serve/protocol/json_writer.h"

namespace espalier {

enum class Api { chat, text };  // /v1/chat/completions, /v1/completions

// What a client wants to see besides the text.
struct AnswerForm {
  Api api = Api::chat;
  int n = 1;        // choices of each prompt
  int prompts = 1;  // choices() in all
  bool stream = false;
  bool include_usage = false;     // a stream ends with an event of usage
  bool continuous_usage = false;  // and each event tells the usage so far
  bool logprobs = false;
  bool echo = false;
  bool timings_per_token = false;
  bool token_ids = false;
  bool metrics = false;
  bool rounds = false;
  bool receipt = false;
  bool prediction = false;  // usage tells what became of it

  int choices() const { return n * prompts; }
};

struct AnswerFrame {
  AnswerForm form = {};
  std::string id = {};       // "chatcmpl-..."
  std::int64_t created = 0;  // seconds since 1970
  std::string model = {};
  std::string fingerprint = {};
  std::uint64_t seed = 0;
  std::vector<std::vector<std::int32_t>> prompts = {};  // their tokens
};

// How every object and event of a response begins: id, object, created, model, system_fingerprint.
JsonObject framed_object(const AnswerFrame& frame, bool whole);

// "chatcmpl-" or "cmpl-", and what tells it from others.
std::string answer_id(Api api, std::string_view unique);

}  // namespace espalier
