#include "serve/protocol/server_objects.h"

#include <algorithm>

#include "serve/protocol/api_error.h"
#include "serve/protocol/json_writer.h"

namespace espalier {
namespace {

std::string one_model(const ModelFacts& model) {
  JsonObject meta;
  meta.integer("n_ctx", model.context).integer("n_ctx_train", model.trained_context);
  meta.integer("n_vocab", model.vocabulary).integer("n_params", model.parameters);
  meta.integer("size", model.file_bytes).string("sha256", model.file_sha256);
  JsonObject object;
  object.string("id", model.id).string("object", "model").integer("created", model.created);
  object.string("owned_by", "espalier").integer("max_model_len", model.context);
  return object.raw("meta", meta.text()).text();
}

std::string default_params(const ServerSettings& settings) {
  const SamplingOptions sampling = default_sampling(settings);
  JsonObject params;
  params.number("temperature", sampling.temperature).number("top_p", sampling.top_p);
  params.integer("top_k", sampling.top_k).number("min_p", sampling.min_p);
  params.number("presence_penalty", sampling.presence_penalty);
  params.number("frequency_penalty", sampling.frequency_penalty);
  params.number("repeat_penalty", sampling.repeat_penalty);
  if (settings.seed)
    params.integer("seed", static_cast<std::int64_t>(*settings.seed));
  else
    params.null("seed");
  return params.text();
}

std::string slot_json(const SlotFacts& slot, std::int64_t context) {
  JsonObject object;
  object.integer("id", slot.id).boolean("is_processing", slot.busy()).integer("n_ctx", context);
  if (slot.busy())
    object.string("request", slot.request);
  else
    object.null("request");
  object.integer("prompt_tokens", slot.prompt_tokens).integer("cached_tokens", slot.cached_tokens);
  object.integer("decoded_tokens", slot.decoded_tokens).integer("rows", slot.rows);
  return object.number("accept_length", slot.accept_length).text();
}

}  // namespace

std::string models_json(const ModelFacts& model) {
  return JsonObject().string("object", "list").raw("data", JsonArray().raw(one_model(model)).text()).text();
}

std::string model_json(const ModelFacts& model, std::string_view id) {
  if (id != model.id) throw model_not_found(id, model.id);
  return one_model(model);
}

std::string props_json(const ServerFacts& facts, const ServerSettings& settings) {
  JsonObject defaults;
  defaults.integer("n_ctx", settings.context).raw("params", default_params(settings));
  JsonArray drafters;
  for (const std::string& drafter : settings.drafters) drafters.string(drafter);
  JsonObject props;
  props.raw("default_generation_settings", defaults.text()).integer("total_slots", facts.slots);
  props.string("model_alias", settings.model).string("model_path", facts.model_file);
  props.string("chat_template", facts.chat_template).string("system_message", facts.system_message);
  props.string("build_info", facts.build);
  props.string("fingerprint", facts.fingerprint).string("device", facts.device);
  props.boolean("batch_invariant", facts.batch_invariant);
  return props.raw("drafters", drafters.text()).string("tree", name(settings.tree)).text();
}

std::string slots_json(std::span<const SlotFacts> slots, std::int64_t context, bool fail_on_no_slot) {
  if (fail_on_no_slot && !slots.empty() && std::ranges::all_of(slots, &SlotFacts::busy))
    throw unavailable("all slots are busy", 1);
  JsonArray list;
  for (const SlotFacts& slot : slots) list.raw(slot_json(slot, context));
  return list.text();
}

std::string health_json(ServerHealth health) {
  switch (health) {
    case ServerHealth::ready: return JsonObject().string("status", "ok").text();
    case ServerHealth::loading: throw unavailable("the model is being loaded", 1);
    case ServerHealth::draining: throw unavailable("the server is shutting down", 1);
    case ServerHealth::failed: break;
  }
  throw unavailable("the server has failed", 30);
}

std::string version_json(const BuildFacts& build) {
  JsonObject object;
  object.string("version", build.version).string("commit", build.commit);
  return object.string("compiler", build.compiler).string("flags", build.flags).text();
}

}  // namespace espalier
