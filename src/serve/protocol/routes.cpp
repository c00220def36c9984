#include "serve/protocol/routes.h"

#include "serve/protocol/api_error.h"

namespace espalier {
namespace {

constexpr std::string_view kAnyId = "{id}";

constexpr Route kRoutes[] = {
    {"GET", "/health", Endpoint::health, false},
    {"GET", "/v1/health", Endpoint::health, false},
    {"GET", "/v1/models", Endpoint::models},
    {"GET", "/models", Endpoint::models},
    {"GET", "/v1/models/{id}", Endpoint::model},
    {"POST", "/v1/chat/completions", Endpoint::chat_completions},
    {"POST", "/chat/completions", Endpoint::chat_completions},
    {"POST", "/v1/completions", Endpoint::completions},
    {"POST", "/v1/chat/completions/input_tokens", Endpoint::input_tokens},
    {"POST", "/chat/completions/input_tokens", Endpoint::input_tokens},
    {"POST", "/tokenize", Endpoint::tokenize},
    {"POST", "/detokenize", Endpoint::detokenize},
    {"POST", "/apply-template", Endpoint::apply_template},
    {"GET", "/tokenizer_info", Endpoint::tokenizer_info},
    {"GET", "/props", Endpoint::props},
    {"GET", "/slots", Endpoint::slots},
    {"GET", "/metrics", Endpoint::metrics},
    {"GET", "/version", Endpoint::version, false},
    {"GET", "/openapi.json", Endpoint::openapi, false},
    {"GET", "/", Endpoint::page, false},
};

// What stands for {id}, which may itself have slashes (models are called owner/name); empty where the path has none.
std::optional<std::string_view> match(const Route& route, std::string_view path) {
  if (!route.path.ends_with(kAnyId)) return route.path == path ? std::optional<std::string_view>("") : std::nullopt;
  const std::string_view begin = route.path.substr(0, route.path.size() - kAnyId.size());
  if (!path.starts_with(begin) || path.size() == begin.size()) return std::nullopt;
  return path.substr(begin.size());
}

}  // namespace

std::span<const Route> routes() {
  return kRoutes;
}

std::string allowed_methods(std::string_view path) {
  for (const Route& route : kRoutes)
    if (match(route, path)) return route.method == "GET" ? "GET, HEAD" : std::string(route.method);
  return {};
}

std::optional<FoundRoute> find_route(std::string_view method, std::string_view path) {
  const std::string_view asked = method == "HEAD" ? "GET" : method;
  for (const Route& route : kRoutes)
    if (const auto id = match(route, path); id && route.method == asked)
      return FoundRoute{route.endpoint, route.needs_key, std::string(*id)};
  const std::string allow = allowed_methods(path);
  if (!allow.empty()) throw method_not_allowed(method, path, allow);
  return std::nullopt;
}

}  // namespace espalier
