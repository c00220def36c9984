// What a client is told when it cannot have what it asked for: one JSON object, OpenAI's form, one line, without the
// prompt's text. Thrown by everything in this folder that reads a request; values, safe to copy between threads.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

namespace espalier {

enum class ErrorType {
  invalid_request,      // 400, 411, 413, 415, 431: the request cannot be read or honoured
  exceed_context_size,  // 400: the prompt does not fit
  authentication,       // 401
  permission,           // 403
  not_found,            // 404, 405
  timeout,              // 408
  rate_limit,           // 429
  server,               // 500
  not_supported,        // 501
  unavailable,          // 503
};
std::string_view name(ErrorType type);  // "invalid_request_error"

struct ApiError : std::exception {
  ApiError(int status, ErrorType type, std::string_view message);
  const char* what() const noexcept override { return message.c_str(); }

  int status;
  ErrorType type;
  std::string message;                               // one line of valid UTF-8, at most kMostMessageBytes
  std::optional<std::string> param = {};             // the field that is wrong: "messages[2].content"
  std::optional<std::string> code = {};              // "model_not_found"
  std::optional<std::int64_t> n_prompt_tokens = {};  // of a prompt that does not fit
  std::optional<std::int64_t> n_ctx = {};
  std::optional<int> retry_after = {};  // seconds, for the header of that name
  std::string allow = {};               // of a 405, for the header of that name: "GET, HEAD"
};

inline constexpr std::size_t kMostMessageBytes = 400;

// Some bytes as one line that can be shown anywhere: control characters become spaces, what is no UTF-8 becomes U+FFFD,
// and what is too long is cut at a character, with "..." behind it.
std::string one_line(std::string_view bytes, std::size_t most_bytes = kMostMessageBytes);

// {"error": {"message", "type", "param", "code"}}: the body of a response, and the last event of a stream that fails.
std::string error_json(const ApiError& error);

// By section 4 of the specification; the service adds what it knows (retry_after, allow).
ApiError invalid_request(std::string_view message, std::string_view param = {});
ApiError prompt_too_long(std::int64_t prompt_tokens, std::int64_t context, std::string_view param);
ApiError model_not_found(std::string_view asked, std::string_view served);
ApiError path_not_found(std::string_view method, std::string_view path);
ApiError method_not_allowed(std::string_view method, std::string_view path, std::string_view allow);
ApiError endpoint_off(std::string_view path, std::string_view flag);
ApiError unavailable(std::string_view message, std::optional<int> retry_after = {});
ApiError rate_limited(int most_requests, int retry_after);
// Our fault: the request's id, and nothing of the inside.
ApiError server_fault(std::string_view request_id);
// An error of the HTTP layer (400, 401, 403, 408, 411, 413, 415, 431), with the type that its status has.
ApiError http_error(int status, std::string_view message);

// What an exception that reached the edge means: an ApiError is itself, an InputError a 400, anything else our fault.
ApiError api_error_of(std::exception_ptr failure, std::string_view request_id);

}  // namespace espalier
