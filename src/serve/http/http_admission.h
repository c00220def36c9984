// Who comes in: what is answered from the head of a request alone, before its body is read, and how refusals are
// answered. What it is given must outlive it, and may change between requests. Lives on the I/O thread.
#pragma once

#include <optional>

#include "serve/http/http_server.h"
#include "serve/http/http_types.h"

namespace espalier {

class HttpAdmission {
 public:
  HttpAdmission(const HttpOptions& options, const HttpApplication& application)
      : options_(options), application_(application) {}

  // Nothing: the request may come in, and the head knows its key. Throws only where a refusal cannot be put in words.
  std::optional<HttpResponse> answer_at_once(HttpHead& head) const;
  HttpResponse response_to(const HttpRefusal& refusal) const;

 private:
  std::optional<HttpRefusal> refuse(HttpHead& head) const;

  const HttpOptions& options_;
  const HttpApplication& application_;
};

}  // namespace espalier
