// Every path of the server, with its method and whether a key is asked for. One list, to which the router and
// openapi.json are held.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace espalier {

enum class Endpoint {
  health,
  models,
  model,
  chat_completions,
  completions,
  input_tokens,
  tokenize,
  detokenize,
  apply_template,
  tokenizer_info,
  props,
  slots,
  metrics,
  version,
  openapi,
  page,
};

struct Route {
  std::string_view method;  // "GET" (then HEAD too), "POST"
  std::string_view path;    // "/v1/models/{id}": the last part is any
  Endpoint endpoint;
  bool needs_key = true;
};
std::span<const Route> routes();

struct FoundRoute {
  Endpoint endpoint;
  bool needs_key = true;
  std::string id = {};  // what stands for {id}
};
// path: decoded, without the query. Nothing: there is none. Throws ApiError 405 with `allow` where the path is known
// for another method. HEAD is GET.
std::optional<FoundRoute> find_route(std::string_view method, std::string_view path);
// "GET, HEAD" or "POST"; empty: there is no such path.
std::string allowed_methods(std::string_view path);

}  // namespace espalier
