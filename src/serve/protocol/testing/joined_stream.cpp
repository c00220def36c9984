#include "serve/protocol/testing/joined_stream.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace espalier {
namespace {

using EventJson = nlohmann::ordered_json;

constexpr std::string_view kData = "data: ";

class StreamJoiner {
 public:
  void take(std::string_view event) {
    if (!event.starts_with(kData) || event.find('\n') != std::string_view::npos)
      return complain(fmt::format("no event: {}", event));
    event.remove_prefix(kData.size());
    if (done_) return complain("an event behind [DONE]");
    done_ = event == "[DONE]";
    if (!done_) take_object(EventJson::parse(event));
  }

  JoinedStream finish() {
    if (!done_) complain("no [DONE]");
    for (std::size_t i = 0; i < choices_.size(); ++i)
      if (!choices_[i].contains("finish_reason")) complain(fmt::format("choice {} does not end", i));
    object_["choices"] = choices_;
    return {object_.dump(), complaint_, events_};
  }

 private:
  void complain(const std::string& what) {
    if (complaint_.empty()) complaint_ = what;
  }

  void take_object(EventJson event) {
    ++events_;
    if (object_.contains("id") && event["id"] != object_["id"]) complain("another id");
    if (event["choices"].empty()) {
      object_["usage"] = event["usage"];
      return;
    }
    if (event["choices"].size() != 1) complain("an event of several choices");
    take_choice(event["choices"][0]);
    event.erase("choices");
    event.erase("usage");
    event["object"] = event["object"] == "chat.completion.chunk" ? "chat.completion" : event["object"];
    object_.update(event);
  }

  void take_choice(EventJson& event) {
    const auto index = event["index"].get<std::size_t>();
    while (choices_.size() <= index) choices_.push_back({{"index", choices_.size()}});
    EventJson& choice = choices_[index];
    if (choice.contains("finish_reason")) complain("an event behind the end of its choice");
    if (event.contains("delta")) take_delta(event["delta"], event, choice);
    if (event.contains("text")) take_text(event["text"], event, choice);
    join_logprobs(event["logprobs"], choice);
    for (const char* list : {"token_ids", "rounds"})
      if (event.contains(list))
        for (const EventJson& element : event[list]) choice[list].push_back(element);
    for (const char* name : {"finish_reason", "stop_reason", "seed", "receipt", "prompt_token_ids"})
      if (event.contains(name) && (!event["finish_reason"].is_null() || std::string_view(name) == "prompt_token_ids"))
        choice[name] = event[name];
  }

  // The first has the role and no content, the last is empty, all others have content.
  void take_delta(const EventJson& delta, const EventJson& event, EventJson& choice) {
    const bool first = !choice.contains("message"), last = !event["finish_reason"].is_null();
    if (first) {
      if (delta != EventJson::parse(R"({"role": "assistant", "content": null})"))
        complain("a first delta without role");
      choice["message"] = {{"role", "assistant"}, {"content", ""}};
      return;
    }
    if (last && !delta.empty()) complain("a last delta that is not empty");
    if (last) return;
    if (delta.size() != 1 || delta.value("content", "").empty()) complain("a delta without content");
    choice["message"]["content"] = choice["message"]["content"].get<std::string>() + delta.value("content", "");
  }

  void take_text(const EventJson& text, const EventJson& event, EventJson& choice) {
    const bool last = !event["finish_reason"].is_null();
    if (text.get<std::string>().empty() != last) complain("text is empty in the last event, and only there");
    choice["text"] = choice.value("text", "") + text.get<std::string>();
  }

  void join_logprobs(const EventJson& logprobs, EventJson& choice) {
    if (logprobs.is_null()) return;
    for (const auto& [name, list] : logprobs.items()) {
      if (!list.is_array()) continue;
      if (list.empty()) complain("log-probabilities of nothing");
      for (const EventJson& element : list) choice["logprobs"][name].push_back(element);
    }
  }

  EventJson object_ = EventJson::object();
  std::vector<EventJson> choices_;
  std::string complaint_;
  int events_ = 0;
  bool done_ = false;
};

}  // namespace

JoinedStream joined_stream(std::string_view events) {
  StreamJoiner joiner;
  while (!events.empty()) {
    const std::size_t end = std::min(events.find("\n\n"), events.size());
    joiner.take(events.substr(0, end));
    events.remove_prefix(std::min(end + 2, events.size()));
  }
  return joiner.finish();
}

}  // namespace espalier
