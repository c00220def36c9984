#include "experiments/suite_engine.h"

#include "base/error.h"

namespace espalier {

SettingModes::SettingModes(OpenEngine& engine, const ModeRequest& request)
    : engine_(engine), modes_(engine.modes), decoder_(engine.decoder) {
  engine.modes = resolve_modes(request);
  apply_modes(engine.modes, engine.decoder);
}

SettingModes::~SettingModes() {
  engine_.modes = modes_;
  engine_.decoder = decoder_;
}

std::string drafter_name(const PlannedRun& run, const OpenEngine& engine) {
  return OpenDrafting(run.request, engine).drafting.name();
}

std::optional<std::string> missing_drafter(const PlannedRun& run, const OpenEngine& engine) {
  if (run.drafter == "head" || run.drafter == "ngram") return std::nullopt;
  try {
    drafter_name(run, engine);
    return std::nullopt;
  } catch (const InputError& error) {
    return error.what();
  }
}

}  // namespace espalier
