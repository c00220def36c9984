// What the server says of itself: /v1/models, /props, /slots, /health, /version. Plain values in, JSON out; nothing of
// prompts and answers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "serve/protocol/request_plan.h"

namespace espalier {

struct ModelFacts {
  std::string id = {};
  std::int64_t created = 0;  // seconds since 1970
  std::int64_t context = 0;  // positions of a sequence
  std::int64_t trained_context = 0;
  std::int64_t vocabulary = 0;
  std::int64_t parameters = 0;
  std::int64_t file_bytes = 0;
  std::string file_sha256 = {};
};
std::string models_json(const ModelFacts& model);
// Throws ApiError 404 for another id.
std::string model_json(const ModelFacts& model, std::string_view id);

struct ServerFacts {
  std::string model_file = {};  // its name, without folders
  int slots = 1;
  std::string chat_template = {};   // empty: the model has none
  std::string system_message = {};  // that a conversation begins with where nobody says; empty: none. Requests get none
                                    // but their own: it is for pages that send it
  std::string build = {};
  std::string fingerprint = {};
  std::string device = {};  // that computes
  bool batch_invariant = true;
};
std::string props_json(const ServerFacts& facts, const ServerSettings& settings);

struct SlotFacts {
  int id = 0;
  std::string request = {};  // of which response; empty: idle
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t decoded_tokens = 0;
  std::int64_t rows = 0;     // verified so far
  double accept_length = 0;  // guesses accepted in a round, the mean so far

  bool busy() const { return !request.empty(); }
};
// fail_on_no_slot: throws ApiError 503 where all are busy.
std::string slots_json(std::span<const SlotFacts> slots, std::int64_t context, bool fail_on_no_slot);

enum class ServerHealth { loading, ready, draining, failed };
// Throws ApiError 503 unless the server is ready.
std::string health_json(ServerHealth health);

struct BuildFacts {
  std::string version = {};
  std::string commit = {};
  std::string compiler = {};
  std::string flags = {};
};
std::string version_json(const BuildFacts& build);

}  // namespace espalier
