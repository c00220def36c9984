// From what a client asked to what the batch is asked: the server's settings fill what was left open, texts become
// tokens, and everything that needs the model's vocabulary or context is checked. Pure: equal arguments, equal plan.
//
// The order for sampling: the request, else the server's flags, else the model's generation config, else OpenAI's
// (temperature 1, top_p 1, everything else off).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "decode/request.h"
#include "serve/protocol/answer_frame.h"
#include "serve/protocol/chat_request.h"
#include "serve/protocol/completion_request.h"
#include "session/chat_prompt.h"
#include "session/session.h"
#include "text/model_text.h"

namespace espalier {

// What the server was started with, as far as requests are concerned.
struct ServerSettings {
  std::string model = {};           // the name that answers carry
  bool strict_model = false;        // requests must name it
  std::int64_t context = 0;         // positions of a sequence
  std::int64_t vocabulary = 0;      // of the model: ids lie below
  SamplingFields flags = {};        // of the command line
  SamplingFields recommended = {};  // by the model's generation config
  std::optional<std::uint64_t> seed = {};
  bool priorities = false;
  bool receipts = true;  // answers depend on their requests alone, so that receipts of them say something
  std::vector<std::string> drafters = {};  // that are loaded: "eagle3", "ngram"; none: plain decoding
  TreeShape tree = TreeShape::dynamic;     // that their trees have
  ChatContext chat = {};                   // the date, a template in place of the model's own, variables
};

// A prompt as tokens, and what its answers need to know of it.
struct PlannedPrompt {
  std::vector<TokenId> tokens = {};
  std::string echo = {};   // its text, where it comes back in front of the answer
  bool added_bos = false;  // the first token is no part of that text
};

// One answer. `index` = prompt * n + choice.
struct PlannedChoice {
  int index = 0;
  int prompt = 0;
  TextOptions text = {};  // how tokens are drawn, with the choice's own seed, and when the answer ends
};

struct RequestPlan {
  AnswerForm form = {};
  std::vector<PlannedPrompt> prompts = {};
  std::vector<PlannedChoice> choices = {};  // by index
  std::uint64_t seed = 0;                   // of choice 0 of every prompt
  DraftCaps draft = {};
  std::vector<TokenId> prediction = {};
  bool cache = true;
  std::string salt = {};
  int priority = 0;
};

// Throw ApiError. fresh_seed: for requests without one, on a server without one; only 53 bits are used, so that also
// clients whose numbers are doubles can send back what the response says.
RequestPlan plan_chat(const ChatRequest& request, const ModelText& text, const ServerSettings& settings,
                      std::uint64_t fresh_seed);
RequestPlan plan_completion(const CompletionRequest& request, const ModelText& text, const ServerSettings& settings,
                            std::uint64_t fresh_seed);

// The seed of a choice: the request's own for choice 0, else hash(seed, choice), 53 bits:
// mix64(mix64(seed + 0x9e3779b97f4a7c15) ^ choice * 0xd1b54a32d192ed03) >> 11 (base/random.h). The choices of each
// prompt of a list are counted from 0, so that a list gives the answers that its prompts give alone.
std::uint64_t choice_seed(std::uint64_t seed, int choice);

// What all objects and events of the response have in common.
AnswerFrame frame_of(const RequestPlan& plan, const ServerSettings& settings, std::string id, std::int64_t created,
                     std::string fingerprint);

// The settings that a request without any of its own gets, as /props and the fingerprint tell them.
SamplingOptions default_sampling(const ServerSettings& settings);

}  // namespace espalier
