#include "bench/load/load_target.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "bench/load/answer_record.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostAnswerBytes = std::size_t{4} << 20;

HttpCall call_of(const LoadTarget& target, std::string method, std::string path) {
  HttpCall call{.method = std::move(method), .target = std::move(path)};
  if (!target.key.empty()) call.headers.emplace_back("Authorization", "Bearer " + target.key);
  return call;
}

Json messages(const LoadPrompt& prompt) {
  Json list = Json::array();
  if (!prompt.shared.empty()) list.push_back({{"role", "system"}, {"content", prompt.shared}});
  list.push_back({{"role", "user"}, {"content", prompt.text}});
  return list;
}

[[noreturn]] void refuse(const LoadTarget& target, int status, const std::string& body) {
  const std::string url = target.url.text();
  if (status == 401 || status == 403)
    input_error("{}: the server does not let us in (status {}): {}", url, status, error_message(body));
  if (status == 503 || status == 429)
    device_error("{}: the server is not ready (status {}): {}", url, status, error_message(body));
  input_error("{}: not an OpenAI server: /v1/models answers with status {}: {}", url, status, error_message(body));
}

void read_models(LoadTarget& target, const std::string& body) {
  const Json json = Json::parse(body, nullptr, false);
  const Json list = json.is_object() ? json.value("data", Json()) : Json();
  const Json model = list.is_array() && !list.empty() ? list.front() : Json();
  const auto text = [&](const char* key) {
    return model.is_object() && model.contains(key) && model[key].is_string() ? model[key].get<std::string>() : "";
  };
  target.model = text("id");
  target.owner = text("owned_by");
  if (target.model.empty())
    input_error("{}: not an OpenAI server: /v1/models lists no model: {}", target.url.text(), error_message(body));
}

}  // namespace

std::string_view name(LoadApi api) {
  return api == LoadApi::chat ? "chat" : "completions";
}

HttpCall answer_call(const LoadTarget& target, LoadApi api, const LoadPrompt& prompt, std::int64_t tokens) {
  Json body = {{"model", target.model}};
  if (api == LoadApi::chat)
    body["messages"] = messages(prompt);
  else
    body["prompt"] = prompt.shared.empty() ? prompt.text : prompt.shared + "\n\n" + prompt.text;
  body["max_tokens"] = tokens;
  body["ignore_eos"] = true;
  body["temperature"] = 0;
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  body["return_token_ids"] = true;
  if (!target.speculation.empty()) body["speculation"] = {{"draft", target.speculation}};
  HttpCall call = call_of(target, "POST", api == LoadApi::chat ? "/v1/chat/completions" : "/v1/completions");
  call.headers.emplace_back("Content-Type", "application/json");
  call.headers.emplace_back("Accept", "text/event-stream");
  call.body = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  return call;
}

bool meet_server(LoadTarget& target, std::chrono::milliseconds patience, const std::function<bool()>& cancelled) {
  HttpClient client(patience);
  int status = 0;
  std::string body, problem;
  client.call(target.url, call_of(target, "GET", "/v1/models"),
              {.on_head = [&](int heard) { status = heard; },
               .on_body =
                   [&](std::string_view bytes, LoadClock::time_point) {
                     if (body.size() < kMostAnswerBytes) body += bytes;
                   },
               .on_end = [&](const std::string& how) { problem = how; }});
  if (!client.run(cancelled)) return false;
  if (status == 0) device_error("{}: the server cannot be reached: {}", target.url.text(), problem);
  if (status != 200) refuse(target, status, body);
  if (!problem.empty()) device_error("{}: {}", target.url.text(), problem);
  read_models(target, body);
  return true;
}

}  // namespace espalier
