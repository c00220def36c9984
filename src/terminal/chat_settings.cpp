#include "terminal/chat_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>

#include "base/error.h"
#include "base/untrusted_text.h"

namespace espalier {
namespace {

template <typename Number>
Number parse_setting(std::string_view name, std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    input_error("/set {}: expected a {}number, got {}", name, std::is_integral_v<Number> ? "whole " : "",
                in_quotes(text));
  return value;
}

// A setting is a place in the options.
struct ChatSetting {
  std::string_view name;
  std::function<void(std::string_view text, TextOptions& options)> set;
  std::function<std::string(const TextOptions& options)> show;
};

template <typename Place>
ChatSetting chat_setting(std::string_view name, Place place) {
  using Number = std::remove_reference_t<decltype(place(std::declval<TextOptions&>()))>;
  return {name,
          [=](std::string_view text, TextOptions& options) { place(options) = parse_setting<Number>(name, text); },
          [=](const TextOptions& options) {
            TextOptions copy = options;
            return fmt::format("{}", place(copy));
          }};
}

const std::array<ChatSetting, 9>& all_settings() {
  static const std::array<ChatSetting, 9> settings = {
      chat_setting("temperature", [](TextOptions& o) -> float& { return o.generate.sampling.temperature; }),
      chat_setting("top-k", [](TextOptions& o) -> std::int64_t& { return o.generate.sampling.top_k; }),
      chat_setting("top-p", [](TextOptions& o) -> float& { return o.generate.sampling.top_p; }),
      chat_setting("min-p", [](TextOptions& o) -> float& { return o.generate.sampling.min_p; }),
      chat_setting("repeat-penalty", [](TextOptions& o) -> float& { return o.generate.sampling.repeat_penalty; }),
      chat_setting("presence-penalty", [](TextOptions& o) -> float& { return o.generate.sampling.presence_penalty; }),
      chat_setting("frequency-penalty", [](TextOptions& o) -> float& { return o.generate.sampling.frequency_penalty; }),
      chat_setting("seed", [](TextOptions& o) -> std::uint64_t& { return o.generate.seed; }),
      chat_setting("max-tokens", [](TextOptions& o) -> std::int64_t& { return o.generate.max_tokens; })};
  return settings;
}

}  // namespace

void set_by_name(std::string_view name, std::string_view value, TextOptions& options) {
  const auto found = std::ranges::find(all_settings(), name, &ChatSetting::name);
  if (found == all_settings().end()) {
    std::string names = "draft";
    for (const ChatSetting& each : all_settings()) names += fmt::format(", {}", each.name);
    input_error("/set: expected one of {}, got {}", names, in_quotes(name));
  }
  TextOptions changed = options;
  found->set(value, changed);
  check_options(changed);
  options = std::move(changed);
}

std::string shown_settings(const TextOptions& options) {
  std::string text;
  for (const ChatSetting& each : all_settings())
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", each.name, each.show(options));
  return text;
}

}  // namespace espalier
