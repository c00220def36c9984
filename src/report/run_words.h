// The words of runs: what ids mean by the tokenizer of the model that a run names, where that is still there.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "report/turn_data.h"

namespace espalier {

// For ReportOptions::words. The tokenizer of each model is read once; runs whose model is gone show ids. given: the
// model to take instead, which must be theirs; empty: none. cache: see model_hash.h. One thread at a time.
std::function<TokenWords(const nlohmann::ordered_json& configuration)> words_of_runs(
    const std::string& given, const std::optional<std::filesystem::path>& cache);

}  // namespace espalier
