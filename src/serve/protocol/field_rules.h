// One list says which fields an object has and what each of them does: reading walks it, and the tests hold
// openapi.json to it.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "serve/protocol/json_body.h"

namespace espalier {

template <typename Request>
struct FieldRule {
  std::string_view name;
  void (*read)(const BodyField& field, Request& request);  // called where the field is there and not null
};

// In the order of the rules: where two write the same place, the later one wins.
template <typename Request>
void read_fields(const BodyField& body, std::span<const FieldRule<Request>> rules, Request& request) {
  for (const FieldRule<Request>& rule : rules)
    if (const auto field = body.find(rule.name)) rule.read(*field, request);
}

template <typename Request>
void add_names(std::span<const FieldRule<Request>> rules, std::vector<std::string_view>& names) {
  for (const FieldRule<Request>& rule : rules) names.push_back(rule.name);
}

}  // namespace espalier
