// What a run was asked for, as its records keep it: the same object in a manifest, in a trace and in a failure dump.
// The numbers of sampling are those of trace/record_json.h.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "engine/answering.h"
#include "engine/drafting.h"
#include "engine/engine.h"
#include "trace/record_json.h"

namespace espalier {

struct RunParts {
  const OpenEngine& engine;
  const Drafting& drafting;
  const TextOptions& text;
  const ChatSettings& chat;
  bool raw = false;
};

// {"model", "engine", "draft", "sampling", "chat"}.
nlohmann::ordered_json run_configuration(const RunParts& run);
// The same with the build and the hash of the model, for the records of a run that has no manifest.
RecordOrigin record_origin(const RunParts& run);

// {"path", "bytes"} of a model or a head.
nlohmann::ordered_json file_json(const std::filesystem::path& path);
std::string absolute_text(const std::filesystem::path& path);
// Null where there is no text.
nlohmann::ordered_json text_or_null(std::string_view text);

}  // namespace espalier
