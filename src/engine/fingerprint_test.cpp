#include "engine/fingerprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/sha256.h"
#include "device/passing_device.h"
#include "engine/model_hash.h"
#include "engine/testing/tiny_model.h"

namespace espalier {
namespace {

using ::testing::MatchesRegex;

OpenEngine tiny_engine(EngineOptions options = {}) {
  options.model = kTinyModel;
  options.threads = options.threads == 0 ? 1 : options.threads;
  if (!options.context) options.context = 128;
  return open_engine(options);
}

EngineOptions on_device(const std::string& device) {
  EngineOptions options;
  options.modes.device = AskedMode{device, "--device"};
  return options;
}

TEST(Fingerprint, NamesWhatModelAndArithmeticAre) {
  const OpenEngine engine = tiny_engine();
  const ModelFingerprint fingerprint = model_fingerprint(engine);
  EXPECT_EQ(fingerprint.model, model_sha256(kTinyModel, std::nullopt));
  EXPECT_EQ(fingerprint.tokenizer, fingerprint.model) << "it is in the same file";
  EXPECT_EQ(fingerprint.configuration, "") << "likewise";
  EXPECT_EQ(fingerprint.end_tokens, engine.text->stop_tokens);
  EXPECT_EQ(fingerprint.chat_template, sha256(std::as_bytes(std::span(engine.text->chat_template->source()))));
  EXPECT_EQ(fingerprint.kv, "f16");
  EXPECT_EQ(fingerprint.weights, "file");
  EXPECT_EQ(fingerprint.arithmetic, kArithmetic);
}

TEST(Fingerprint, NamesTheOrderOfFloatSumsOnlyWhereThereAreFloatWeights) {
  const ModelFingerprint floats = model_fingerprint(tiny_engine());
  EXPECT_EQ(floats.float_order, "ascending");
  EXPECT_EQ(floats.activations, "f32");
  const ModelFingerprint blocks = model_fingerprint(tiny_engine({.weights = WeightMode::q8_0}));
  EXPECT_EQ(blocks.float_order, "");
  EXPECT_EQ(blocks.activations, "");
  EXPECT_EQ(blocks.weights, "q8_0");
}

TEST(Fingerprint, DoesNotDependOnHowFastItIsComputed) {
  const ModelFingerprint expected = model_fingerprint(tiny_engine());
  EXPECT_EQ(model_fingerprint(tiny_engine({.threads = 3})), expected);
  EXPECT_EQ(model_fingerprint(tiny_engine({.context = 64})), expected) << "which a receipt has for itself";
  EXPECT_EQ(model_fingerprint(tiny_engine({.timed_ops = true})), expected);
  EXPECT_EQ(model_fingerprint(tiny_engine(on_device("reference"))), expected) << "it has the same bits";
  EngineOptions checked;
  checked.modes.checked = AskedMode{"ascend", "--checked"};
  EXPECT_EQ(model_fingerprint(tiny_engine(checked)), expected);
}

TEST(Fingerprint, SaysTheFirstPartThatIsAnother) {
  const ModelFingerprint one = model_fingerprint(tiny_engine());
  EXPECT_EQ(first_other_part(one, one), std::nullopt);
  EXPECT_EQ(first_other_part(model_fingerprint(tiny_engine({.kv_type = DType::f32})), one),
            "kv is \"f32\", expected \"f16\"");
  const ChatTemplate instead("{{ messages[0].content }}");
  const OpenEngine engine = tiny_engine();
  EXPECT_EQ(first_other_part(model_fingerprint(engine, &instead), one),
            "chat_template is \"" + sha256(std::as_bytes(std::span(instead.source()))) + "\", expected \"" +
                one.chat_template + "\"");
  ModelFingerprint other = one;
  other.float_order = "";
  EXPECT_EQ(first_other_part(other, one), "float_order is none, expected \"ascending\"");
}

TEST(Fingerprint, OfAServerChangesWithEveryPart) {
  const ServerFingerprint parts{.model = model_fingerprint(tiny_engine()), .context = 128};
  const std::string expected = server_fingerprint(parts);
  EXPECT_THAT(expected, MatchesRegex("b[0-9a-f]{32}"));
  EXPECT_EQ(server_fingerprint(parts), expected);
  const std::vector<std::function<void(ServerFingerprint&)>> changes = {
      [](auto& p) { p.model.model = std::string(64, '0'); },
      [](auto& p) { p.model.weights = "f32"; },
      [](auto& p) { p.model.configuration = std::string(64, '0'); },
      [](auto& p) { p.model.tokenizer = std::string(64, '0'); },
      [](auto& p) { p.model.end_tokens.push_back(9); },
      [](auto& p) { p.model.chat_template = ""; },
      [](auto& p) { p.model.kv = "f32"; },
      [](auto& p) { p.model.arithmetic += 1; },
      [](auto& p) { p.model.float_order = "mma-90"; },
      [](auto& p) { p.model.activations = "bf16"; },
      [](auto& p) { p.context += 1; },
      [](auto& p) { p.sampling.logit_bias[3] = 1.0f; },
      [](auto& p) { p.sampling.repeat_penalty = 1.1f; },
      [](auto& p) { p.sampling.presence_penalty = 1.0f; },
      [](auto& p) { p.sampling.frequency_penalty = 1.0f; },
      [](auto& p) { p.sampling.temperature = 1.0f; },
      [](auto& p) { p.sampling.top_k = 1; },
      [](auto& p) { p.sampling.top_p = 0.5f; },
      [](auto& p) { p.sampling.min_p = 0.5f; },
      [](auto& p) { p.template_variables = "{}"; },
      [](auto& p) { p.date = "2026-11-15"; }};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    ServerFingerprint other = parts;
    changes[i](other);
    EXPECT_NE(server_fingerprint(other), expected) << i;
  }
}

TEST(Fingerprint, HasADateWhereTheTemplateAsksForOne) {
  const OpenEngine engine = tiny_engine();
  const ChatTemplate dated("{{ strftime_now('%d %b %Y') }} {{ messages[0].content }}");
  EXPECT_EQ(date_for(engine, &dated, "2026-11-15"), "2026-11-15");
  EXPECT_EQ(date_for(engine, nullptr, "2026-11-15"), "") << "the model's own does not";
}

}  // namespace
}  // namespace espalier
