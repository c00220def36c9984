// The run behind a trace or a dump, found again: its model, and how it computed.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/draft_plan.h"
#include "engine/engine.h"
#include "text/model_text.h"

namespace espalier {

// The model that a configuration names, or `given` where that is not empty. Throws InputError where it is not there, or
// where size or hash are not those of the record at `where`. cache: see model_hash.h.
std::filesystem::path recorded_model(const nlohmann::ordered_json& configuration, const std::string& given,
                                     std::string_view where, const std::optional<std::filesystem::path>& cache);

// The text of that model. Nothing where it is not there, or is another, and none is given: ids will do then. Throws as
// recorded_model() does for one that is.
std::optional<ModelText> recorded_text(const nlohmann::ordered_json& configuration, const std::string& given,
                                       std::string_view where, const std::optional<std::filesystem::path>& cache);

// Everything that the options leave open, as the record has it: modes, KV type, weights, context. Attention and mask
// are one choice, and a mode leaves nothing open.
void fill_engine_options(const nlohmann::ordered_json& configuration, EngineOptions& options);

// Who drafted, in the words of --draft, by source bit; none: plain decoding, or not known.
std::vector<std::string> recorded_drafters(const nlohmann::ordered_json& configuration);
// The options that give these drafters again.
DraftOptions recorded_drafting(const nlohmann::ordered_json& configuration);

}  // namespace espalier
