// Any bytes, as the head of a request, in one piece and in two: the same head both times, whose fields hold no line
// ends and whose body has one length; or a refusal in one line.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "require.h"
#include "serve/http/request_head.h"
#include "serve/http/request_rules.h"

namespace {

using espalier::HeadReader;
using espalier::HttpHead;
using espalier::HttpRefusal;
using Result = std::variant<std::monostate, HttpHead, HttpRefusal>;

constexpr std::size_t kHeadLimit = 512;  // small, so that it is met

bool is_one_line(std::string_view text) {
  return text.find_first_of(std::string_view("\r\n\0", 3)) == std::string_view::npos;
}

void check(const HttpRefusal& refusal) {
  require(refusal.status >= 400 && refusal.status <= 505);
  require(!refusal.message.empty() && is_one_line(refusal.message));
  for (const espalier::HttpHeader& header : refusal.headers) require(is_one_line(header.name + header.value));
}

void check(const HttpHead& head) {
  require(!head.method.empty() && is_one_line(head.method));
  require(head.target.path == "*" || head.target.path.starts_with('/'));
  require(head.minor_version == 0 || head.minor_version == 1);
  for (const espalier::HttpHeader& header : head.headers)
    require(!header.name.empty() && is_one_line(header.name + header.value));
  if (const auto refusal = espalier::refuse_framing(head)) return check(*refusal);
  require(head.count("Host") == 1 || (head.count("Host") == 0 && head.minor_version == 0));
  require(head.count("Transfer-Encoding") == 0 && head.count("Content-Length") <= 1);
  espalier::wants_keep_alive(head);
  const espalier::HttpLimits limits;
  if (const auto refusal = espalier::refuse_body(head, limits)) return check(*refusal);
  require(espalier::body_length(head) <= limits.body_bytes);
  espalier::expects_continue(head);
}

bool same(const Result& left, const Result& right) {
  if (left.index() != right.index()) return false;
  if (const auto* head = std::get_if<HttpHead>(&left)) {
    const HttpHead& other = std::get<HttpHead>(right);
    return head->method == other.method && head->target.path == other.target.path &&
           head->target.query == other.target.query && head->minor_version == other.minor_version &&
           head->headers == other.headers;
  }
  if (const auto* refusal = std::get_if<HttpRefusal>(&left))
    return refusal->status == std::get<HttpRefusal>(right).status;
  return true;
}

}  // namespace

// The first byte says where the others come apart.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  bytes.remove_prefix(espalier::blank_lines(bytes));
  HeadReader whole(kHeadLimit), parts(kHeadLimit);
  const Result result = whole.read(bytes);
  Result in_parts = parts.read(bytes.substr(0, data[0]));
  if (std::holds_alternative<std::monostate>(in_parts)) in_parts = parts.read(bytes);
  require(same(result, in_parts));
  if (const auto* refusal = std::get_if<HttpRefusal>(&result)) check(*refusal);
  if (const auto* head = std::get_if<HttpHead>(&result)) {
    require(whole.size() == parts.size() && whole.size() <= kHeadLimit && whole.size() <= bytes.size());
    check(*head);
  }
  return 0;
}
