#include "engine/model_facts.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace espalier
