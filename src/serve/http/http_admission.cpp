#include "serve/http/http_admission.h"

#include <string_view>

#include "serve/http/request_rules.h"
#include "serve/http/response_bytes.h"

namespace espalier {
namespace {

constexpr std::string_view kErrorType = "application/json";

}  // namespace

std::optional<HttpResponse> HttpAdmission::answer_at_once(HttpHead& head) const {
  try {
    const BrowserRules& browsers = options_.browsers;
    std::optional<HttpRefusal> refusal = refuse_framing(head);
    if (!refusal) refusal = refuse_browser(head, browsers);
    if (!refusal && head.method == "OPTIONS") return answer_options(head, browsers);
    if (!refusal) refusal = refuse(head);
    return refusal ? std::optional(response_to(*refusal)) : std::nullopt;
  } catch (...) {
    return response_to(no_answer(head.id));
  }
}

// The order matters: without a key nobody learns which paths there are.
std::optional<HttpRefusal> HttpAdmission::refuse(HttpHead& head) const {
  if (!options_.keys.empty()) {
    head.key = options_.keys.find(head).value_or(-1);
    if (head.key < 0 && !(application_.is_public && application_.is_public(head))) return no_key();
  }
  if (application_.admit)
    if (auto refusal = application_.admit(head)) return refusal;
  return refuse_body(head, options_.limits);
}

HttpResponse HttpAdmission::response_to(const HttpRefusal& refusal) const {
  check_answer(refusal.status, kErrorType, refusal.headers);
  if (application_.on_refused) application_.on_refused(refusal.status);
  return {.status = refusal.status,
          .content_type = std::string(kErrorType),
          .headers = refusal.headers,
          .body = application_.error_body(refusal)};
}

}  // namespace espalier
