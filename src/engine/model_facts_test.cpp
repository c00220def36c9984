#include "engine/model_facts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/testing/tiny_model.h"
#include "format/gguf.h"

namespace espalier {
namespace {

TEST(ModelFacts, CountTensorsAndBytesByType) {
  const Gguf source(kTinyModel);
  const nlohmann::ordered_json facts = describe_model(kTinyModel, source);
  EXPECT_EQ(facts["format"], "gguf");
  EXPECT_EQ(facts["model"]["family"], "llama");
  EXPECT_EQ(facts["weights"]["tensors"], source.tensors().size());
  std::int64_t bytes = 0;
  for (const auto& [type, figures] : facts["weights"]["types"].items()) bytes += figures["bytes"].get<std::int64_t>();
  EXPECT_EQ(facts["weights"]["bytes"], bytes);
  EXPECT_TRUE(facts["text"].contains("stop_tokens"));
}

TEST(ModelFacts, AreLinesForPeopleAndSoAreTensors) {
  EXPECT_EQ(facts_text({{"a", "b"}, {"c", {{"d", 1}, {"e", {{"f", {1, 2}}}}}}, {"g", nullptr}}),
            "a: b\nc:\n  d: 1\n  e:\n    f: [1,2]\ng: null\n");
  const Gguf source(kTinyModel);
  const std::string text = tensors_text(source);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), std::ssize(source.tensors()));
  EXPECT_NE(text.find("  token_embd.weight                            f32   272 x 32\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace espalier
