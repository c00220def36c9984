#include "serve/protocol/api_error.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/untrusted_text.h"
#include "serve/protocol/json_writer.h"
#include "text/utf8.h"

namespace espalier {
namespace {

constexpr std::string_view kCut = "...";

ErrorType type_of_status(int status) {
  switch (status) {
    case 401: return ErrorType::authentication;
    case 403: return ErrorType::permission;
    case 404:
    case 405: return ErrorType::not_found;
    case 408: return ErrorType::timeout;
    case 429: return ErrorType::rate_limit;
    case 500: return ErrorType::server;
    case 501: return ErrorType::not_supported;
    case 503: return ErrorType::unavailable;
    default: return ErrorType::invalid_request;
  }
}

std::string json_or_null(const std::optional<std::string>& text) {
  return text ? json_string(*text) : "null";
}

}  // namespace

std::string_view name(ErrorType type) {
  switch (type) {
    case ErrorType::invalid_request: return "invalid_request_error";
    case ErrorType::exceed_context_size: return "exceed_context_size_error";
    case ErrorType::authentication: return "authentication_error";
    case ErrorType::permission: return "permission_error";
    case ErrorType::not_found: return "not_found_error";
    case ErrorType::timeout: return "timeout_error";
    case ErrorType::rate_limit: return "rate_limit_error";
    case ErrorType::server: return "server_error";
    case ErrorType::not_supported: return "not_supported_error";
    case ErrorType::unavailable: return "unavailable_error";
  }
  return "server_error";
}

std::string one_line(std::string_view bytes, std::size_t most_bytes) {
  std::string line;
  while (!bytes.empty()) {
    const Utf8Step step = utf8_step(bytes);
    const bool whole = step.kind == Utf8Step::Kind::character;
    const bool control = whole && (step.code_point < 0x20 || (step.code_point >= 0x7F && step.code_point < 0xA0) ||
                                   step.code_point == 0x2028 || step.code_point == 0x2029);
    const std::string_view shown = control ? " " : whole ? bytes.substr(0, step.size) : kReplacementCharacter;
    if (line.size() + shown.size() + kCut.size() > most_bytes) return line + std::string(kCut);
    line += shown;
    bytes.remove_prefix(step.size);
  }
  return line;
}

ApiError::ApiError(int status_code, ErrorType error_type, std::string_view text)
    : status(status_code), type(error_type), message(one_line(text)) {}

std::string error_json(const ApiError& error) {
  JsonObject inner;
  inner.string("message", error.message).string("type", name(error.type));
  inner.raw("param", json_or_null(error.param)).raw("code", json_or_null(error.code));
  if (error.n_prompt_tokens) inner.integer("n_prompt_tokens", *error.n_prompt_tokens);
  if (error.n_ctx) inner.integer("n_ctx", *error.n_ctx);
  return JsonObject().raw("error", inner.text()).text();
}

ApiError invalid_request(std::string_view message, std::string_view param) {
  ApiError error(400, ErrorType::invalid_request, message);
  if (!param.empty()) error.param = one_line(param, 128);
  return error;
}

// Clients know this error by words: langchain by "prompt is too long", litellm by llama.cpp's that follow.
ApiError prompt_too_long(std::int64_t prompt_tokens, std::int64_t context, std::string_view param) {
  ApiError error(400, ErrorType::exceed_context_size,
                 fmt::format("{}: the prompt is too long: {} tokens, which exceeds the available context size of {}",
                             param, prompt_tokens, context));
  error.param = std::string(param);
  error.code = "context_length_exceeded";
  error.n_prompt_tokens = prompt_tokens;
  error.n_ctx = context;
  return error;
}

ApiError model_not_found(std::string_view asked, std::string_view served) {
  ApiError error(404, ErrorType::not_found,
                 fmt::format("model: expected {}, got {}", in_quotes(served), in_quotes(asked)));
  error.param = "model";
  error.code = "model_not_found";
  return error;
}

ApiError path_not_found(std::string_view method, std::string_view path) {
  return ApiError(404, ErrorType::not_found, fmt::format("{} {}: there is no such path", method, path));
}

ApiError method_not_allowed(std::string_view method, std::string_view path, std::string_view allow) {
  ApiError error(405, ErrorType::not_found, fmt::format("{}: expected {}, got {}", path, allow, method));
  error.allow = std::string(allow);
  return error;
}

ApiError endpoint_off(std::string_view path, std::string_view flag) {
  return ApiError(501, ErrorType::not_supported, fmt::format("{} is switched off ({})", path, flag));
}

ApiError unavailable(std::string_view message, std::optional<int> retry_after) {
  ApiError error(503, ErrorType::unavailable, message);
  error.retry_after = retry_after;
  return error;
}

ApiError rate_limited(int most_requests, int retry_after) {
  ApiError error(429, ErrorType::rate_limit,
                 fmt::format("this key has {} requests under way, which is the most there may be", most_requests));
  error.retry_after = retry_after;
  return error;
}

ApiError server_fault(std::string_view request_id) {
  return ApiError(500, ErrorType::server, fmt::format("the server failed at request {}", request_id));
}

ApiError http_error(int status, std::string_view message) {
  return ApiError(status, type_of_status(status), message);
}

ApiError api_error_of(std::exception_ptr failure, std::string_view request_id) {
  try {
    std::rethrow_exception(std::move(failure));
  } catch (const ApiError& error) {
    return error;
  } catch (const InputError& error) {
    return invalid_request(error.what());
  } catch (...) {
    return server_fault(request_id);
  }
}

}  // namespace espalier
