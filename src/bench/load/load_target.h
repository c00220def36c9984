// A server under load: where it is, how it is asked, and what it says of itself.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "bench/load/http_client.h"
#include "bench/load/load_prompts.h"
#include "bench/load/server_url.h"

namespace espalier {

enum class LoadApi { chat, completions };
std::string_view name(LoadApi api);

struct LoadTarget {
  ServerUrl url = {};
  std::string key = {};          // "": none is sent
  std::string speculation = {};  // espalier's field: auto, none, a drafter; "": it is not sent
  std::string model = {};        // as the server calls it
  std::string owner = {};        // "espalier", "llamacpp", ...
};

// A streamed, greedy answer of exactly so many tokens.
HttpCall answer_call(const LoadTarget& target, LoadApi api, const LoadPrompt& prompt, std::int64_t tokens);

// Asks for the server's models and takes the first. Throws: InputError where it wants a key or is no OpenAI server,
// DeviceError where it cannot be reached or is not ready. False: it was cancelled.
bool meet_server(LoadTarget& target, std::chrono::milliseconds patience, const std::function<bool()>& cancelled);

}  // namespace espalier
