// The flags of `espalier serve`, and what they mean together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/environment.h"
#include "cli/flags.h"
#include "serve/server.h"

namespace CLI {
class App;
}

namespace espalier {

struct ServeFlags {
  ServerOptions options = {};  // as far as flags fill it directly
  EngineFlags engine = {};
  DraftOptions drafting = {};
  std::vector<std::string> keys = {};
  std::string key_file = {};
  std::string cors = {};
  std::vector<std::string> allow_hosts = {};
  std::string kv_memory = {}, body_limit = {};
  std::string cache_scope = "key";
  double queue_seconds = 120, request_seconds = 600, drain_seconds = 30;
  double stall_ms = 50;
};
void add_serve_flags(CLI::App& app, ServeFlags& flags);

// Throws InputError where they contradict each other. Reads the file of keys, and ESPALIER_API_KEY where no flag gives
// one.
ServerOptions server_options(const ServeFlags& flags, const Environment& environment);

// "4096", "512M", "1.5GiB": of 1024 each. Throws InputError naming the flag.
std::int64_t parse_bytes(std::string_view text, std::string_view flag);

}  // namespace espalier
