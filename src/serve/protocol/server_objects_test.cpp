#include "serve/protocol/server_objects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "serve/protocol/testing/refusal.h"

namespace espalier {
namespace {

using nlohmann::json;

const ModelFacts kModel{.id = "tiny",
                        .created = 5,
                        .context = 256,
                        .trained_context = 2048,
                        .vocabulary = 272,
                        .parameters = 1000,
                        .file_bytes = 4000,
                        .file_sha256 = "ab"};

TEST(ServerObjects, TheListHasTheOneModel) {
  EXPECT_EQ(json::parse(models_json(kModel)), json::parse(R"({"object": "list", "data": [{"id": "tiny",
      "object": "model", "created": 5, "owned_by": "espalier", "max_model_len": 256, "meta": {"n_ctx": 256,
      "n_ctx_train": 2048, "n_vocab": 272, "n_params": 1000, "size": 4000, "sha256": "ab"}}]})"));
  EXPECT_EQ(json::parse(model_json(kModel, "tiny"))["id"], "tiny");
  EXPECT_EQ(refusal([] { model_json(kModel, "other"); }).status, 404);
}

TEST(ServerObjects, PropsTellWhatARequestGetsThatSaysNothing) {
  ServerSettings settings{.model = "tiny", .context = 256, .vocabulary = 272};
  settings.flags.temperature = 0.8;
  settings.drafters = {"ngram"};
  settings.tree = TreeShape::fixed;
  const ServerFacts facts{.model_file = "tiny.gguf",
                          .slots = 8,
                          .chat_template = "{{ x }}",
                          .system_message = "Be brief.",
                          .build = "espalier 1",
                          .fingerprint = "b12",
                          .device = "cpu",
                          .batch_invariant = true};
  EXPECT_EQ(json::parse(props_json(facts, settings)), json::parse(R"({"default_generation_settings": {"n_ctx": 256,
      "params": {"temperature": 0.8, "top_p": 1, "top_k": 0, "min_p": 0, "presence_penalty": 0, "frequency_penalty": 0,
      "repeat_penalty": 1, "seed": null}}, "total_slots": 8, "model_alias": "tiny", "model_path": "tiny.gguf",
      "chat_template": "{{ x }}", "system_message": "Be brief.", "build_info": "espalier 1", "fingerprint": "b12",
      "device": "cpu", "batch_invariant": true, "drafters": ["ngram"], "tree": "static"})"));
}

TEST(ServerObjects, SlotsAreListedAlsoWhenIdle) {
  const SlotFacts busy{.id = 0,
                       .request = "cmpl-1",
                       .prompt_tokens = 9,
                       .cached_tokens = 4,
                       .decoded_tokens = 2,
                       .rows = 12,
                       .accept_length = 1.5};
  const SlotFacts slots[] = {busy, {.id = 1}};
  const json list = json::parse(slots_json(slots, 256, true));
  EXPECT_EQ(list[0], json::parse(R"({"id": 0, "is_processing": true, "n_ctx": 256, "request": "cmpl-1",
      "prompt_tokens": 9, "cached_tokens": 4, "decoded_tokens": 2, "rows": 12, "accept_length": 1.5})"));
  EXPECT_EQ(list[1]["is_processing"], false);
  EXPECT_TRUE(list[1]["request"].is_null());
}

TEST(ServerObjects, NoFreeSlotIsAnErrorOnlyWhereAskedFor) {
  const SlotFacts slots[] = {{.id = 0, .request = "cmpl-1"}};
  EXPECT_EQ(json::parse(slots_json(slots, 256, false)).size(), 1u);
  EXPECT_EQ(refusal([&] { slots_json(slots, 256, true); }).status, 503);
}

TEST(ServerObjects, WhereThereIsNoSlotYetNoneIsBusy) {
  EXPECT_EQ(slots_json({}, 64, true), "[]");
}

TEST(ServerObjects, WhoeverIsTurnedAwayIsToldWhenToComeBack) {
  for (const ServerHealth health : {ServerHealth::loading, ServerHealth::draining, ServerHealth::failed}) {
    const ApiError error = refusal([&] { health_json(health); });
    ASSERT_TRUE(error.retry_after);
    EXPECT_GE(*error.retry_after, 1);
    EXPECT_LE(*error.retry_after, 30);
  }
}

TEST(ServerObjects, HealthIsOkOrUnavailable) {
  EXPECT_EQ(health_json(ServerHealth::ready), R"({"status":"ok"})");
  for (const ServerHealth health : {ServerHealth::loading, ServerHealth::draining, ServerHealth::failed}) {
    const ApiError error = refusal([&] { health_json(health); });
    EXPECT_EQ(error.status, 503);
    EXPECT_EQ(error.type, ErrorType::unavailable);
  }
}

TEST(ServerObjects, TheVersionTellsTheBuild) {
  EXPECT_EQ(json::parse(version_json({"1.2", "abc", "GNU 12", "-O3"})),
            json::parse(R"({"version": "1.2", "commit": "abc", "compiler": "GNU 12", "flags": "-O3"})"));
}

}  // namespace
}  // namespace espalier
