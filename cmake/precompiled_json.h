#pragma once

// What most files read of JSON, compiled once (cmake/precompiled_json.cpp) instead of in each of them. Precompiled
// headers alone include it: a file that is compiled by itself does without.
#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

extern template class nlohmann::basic_json<>;
extern template class nlohmann::detail::serializer<nlohmann::json>;
extern template nlohmann::json nlohmann::json::parse(const std::string&, nlohmann::json::parser_callback_t, bool, bool);
extern template nlohmann::json nlohmann::json::parse(std::string&, nlohmann::json::parser_callback_t, bool, bool);
extern template nlohmann::json nlohmann::json::parse(std::string&&, nlohmann::json::parser_callback_t, bool, bool);
extern template nlohmann::json nlohmann::json::parse(const std::string_view&, nlohmann::json::parser_callback_t, bool,
                                                     bool);
