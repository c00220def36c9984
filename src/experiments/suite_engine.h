// The engine of a suite: one loaded model that its settings share. A setting's modes hold while a run goes on.
#pragma once

#include <optional>
#include <string>

#include "engine/drafting.h"
#include "experiments/suite_plan.h"

namespace espalier {

// The modes of a setting for an engine, until this is gone.
class SettingModes {
 public:
  SettingModes(OpenEngine& engine, const ModeRequest& request);
  ~SettingModes();
  SettingModes(const SettingModes&) = delete;
  SettingModes& operator=(const SettingModes&) = delete;

 private:
  OpenEngine& engine_;
  ModeOptions modes_;
  DecoderOptions decoder_;
};

// The drafters of a run, opened. Throws InputError as Drafting does.
struct OpenDrafting {
  DraftPlan plan;
  Drafting drafting;

  OpenDrafting(const EvalRequest& request, const OpenEngine& engine)
      : plan(plan_drafting(request.drafting, engine.places)), drafting(plan, engine, request.text.generate.seed) {}
};

// What `--draft auto`, or what the user asked for, comes to: "eagle3", "ngram", "eagle3+ngram".
std::string drafter_name(const PlannedRun& run, const OpenEngine& engine);

// Why a run cannot be done with this engine, if so: there is no such head.
std::optional<std::string> missing_drafter(const PlannedRun& run, const OpenEngine& engine);

}  // namespace espalier
