#include "serve/protocol/openapi.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "serve/protocol/api_error.h"
#include "serve/protocol/chat_request.h"
#include "serve/protocol/completion_request.h"
#include "serve/protocol/routes.h"
#include "serve/protocol/server_objects.h"
#include "serve/protocol/text_endpoints.h"

namespace espalier {
namespace {

using nlohmann::json;
using testing::ContainerEq;
using testing::HasSubstr;

using Names = std::set<std::string>;

const json& description() {
  static const json document = json::parse(kOpenApi);
  return document;
}

// What a "$ref" stands for.
const json& resolved(const json& value) {
  if (!value.contains("$ref")) return value;
  return resolved(description().at(json::json_pointer(value["$ref"].get<std::string>().substr(1))));
}

// The properties of a schema, those of its parts included.
void add_properties(const json& schema, Names& names) {
  const json& here = resolved(schema);
  const json properties = here.value("properties", json::object());
  for (auto property = properties.begin(); property != properties.end(); ++property)
    EXPECT_TRUE(names.insert(property.key()).second) << property.key() << " is described twice";
  for (const json& part : here.value("allOf", json::array())) add_properties(part, names);
}

Names described_fields(const std::string& path) {
  Names names;
  const json& body = resolved(description().at("paths").at(path).at("post").at("requestBody"));
  add_properties(body.at("content").at("application/json").at("schema"), names);
  return names;
}

Names known(const std::vector<std::string_view>& names) {
  return Names(names.begin(), names.end());
}

TEST(OpenApi, IsOneOfVersion31) {
  EXPECT_EQ(description()["openapi"], "3.1.0");
}

TEST(OpenApi, EveryPathIsARouteAndEveryRouteAPath) {
  Names described, routed;
  for (const auto& [path, methods] : description()["paths"].items())
    for (const auto& [method, operation] : methods.items()) described.insert(method + " " + path);
  for (const Route& route : routes()) {
    std::string method(route.method);
    for (char& c : method) c = static_cast<char>(std::tolower(c));
    routed.insert(method + " " + std::string(route.path));
  }
  EXPECT_THAT(described, ContainerEq(routed));
}

TEST(OpenApi, OpenPathsAskForNoKey) {
  for (const Route& route : routes()) {
    const json& operation = description()["paths"][std::string(route.path)][route.method == "GET" ? "get" : "post"];
    EXPECT_EQ(operation.contains("security"), !route.needs_key) << route.path;
  }
}

TEST(OpenApi, EveryFieldIsDescribedAndNoOther) {
  for (const char* chat : {"/v1/chat/completions", "/chat/completions"})
    EXPECT_THAT(described_fields(chat), ContainerEq(known(chat_field_names())));
  for (const char* counted : {"/v1/chat/completions/input_tokens", "/chat/completions/input_tokens", "/apply-template"})
    EXPECT_THAT(described_fields(counted), ContainerEq(known(chat_prompt_field_names())));
  EXPECT_THAT(described_fields("/v1/completions"), ContainerEq(known(completion_field_names())));
  EXPECT_THAT(described_fields("/tokenize"), ContainerEq(known(tokenize_field_names())));
  EXPECT_THAT(described_fields("/detokenize"), ContainerEq(known(detokenize_field_names())));
}

void check_references(const json& value) {
  const bool refers = value.is_object() && value.contains("$ref");
  EXPECT_NO_THROW(refers ? resolved(value) : value) << value;
  for (const json& inner : value.is_structured() ? value : json::array()) check_references(inner);
}

TEST(OpenApi, EveryReferenceLeadsSomewhere) {
  check_references(description());
}

TEST(OpenApi, EveryTypeOfErrorIsDescribed) {
  Names described, used;
  for (const json& type :
       description()["components"]["schemas"]["Error"]["properties"]["error"]["properties"]["type"]["enum"])
    described.insert(type.get<std::string>());
  for (int type = 0; type <= static_cast<int>(ErrorType::unavailable); ++type)
    used.insert(std::string(name(static_cast<ErrorType>(type))));
  EXPECT_THAT(described, ContainerEq(used));
}

TEST(OpenApi, EveryPropertyOfTheServerIsDescribedAndNoOther) {
  Names described, told;
  add_properties(description()["paths"]["/props"]["get"]["responses"]["200"]["content"]["application/json"]["schema"],
                 described);
  const json props = json::parse(props_json({}, {}));
  for (const auto& [name, value] : props.items()) told.insert(name);
  EXPECT_THAT(described, ContainerEq(told));
}

// Limits stand in two places: they must say the same.
TEST(OpenApi, LimitsAreThoseOfTheCode) {
  const json& shared = description()["components"]["schemas"]["SharedFields"]["properties"];
  EXPECT_EQ(shared["n"]["maximum"], kMostChoices);
  const json& prompt = description()["components"]["schemas"]["CompletionRequest"]["allOf"][1]["properties"]["prompt"];
  EXPECT_THAT(prompt["description"], HasSubstr(fmt::format("at most {} in all", kMostAnswers)));
  EXPECT_EQ(shared["logit_bias"]["oneOf"][1]["maxProperties"], kMostBiases);
  EXPECT_EQ(shared["stop"]["oneOf"][2]["maxItems"], kMostStops);
  EXPECT_EQ(shared["stop"]["oneOf"][1]["maxLength"], kMostStopBytes);
  EXPECT_EQ(shared["stop_token_ids"]["maxItems"], kMostStopTokens);
  EXPECT_EQ(shared["speculation"]["oneOf"][1]["properties"]["depth"]["maximum"], kMostSpeculatedLevels);
  EXPECT_EQ(description()["components"]["schemas"]["ChatPrompt"]["properties"]["messages"]["maxItems"], kMostMessages);
}

}  // namespace
}  // namespace espalier
