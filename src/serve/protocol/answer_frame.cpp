#include "serve/protocol/answer_frame.h"

namespace espalier {
namespace {

std::string_view object_name(Api api, bool whole) {
  if (api == Api::text) return "text_completion";
  return whole ? "chat.completion" : "chat.completion.chunk";
}

}  // namespace

JsonObject framed_object(const AnswerFrame& frame, bool whole) {
  JsonObject object;
  object.string("id", frame.id).string("object", object_name(frame.form.api, whole));
  object.integer("created", frame.created).string("model", frame.model);
  object.string("system_fingerprint", frame.fingerprint);
  return object;
}

std::string answer_id(Api api, std::string_view unique) {
  return std::string(api == Api::chat ? "chatcmpl-" : "cmpl-") + std::string(unique);
}

}  // namespace espalier
