#include "cli/mode_flags.h"

#include <CLI/CLI.hpp>

namespace espalier {
namespace {

// How an option can be asked for.
struct ModeWords {
  const char* flag;
  const char* variable;  // nullptr: only by flag and mode
  std::optional<std::string> ModeFlags::*given;
  std::optional<AskedMode> ModeRequest::*asked;
};

using F = ModeFlags;
using R = ModeRequest;
constexpr ModeWords kModeWords[] = {
    {"--mode", "ESPALIER_MODE", &F::mode, &R::mode},
    {"--device", "ESPALIER_DEVICE", &F::device, &R::device},
    {"--checked", nullptr, &F::checked, &R::checked},
    {"--invariants", nullptr, &F::invariants, &R::invariants},
    {"--attention", "ESPALIER_ATTENTION", &F::attention, &R::attention},
    {"--cache", nullptr, &F::cache, &R::cache},
    {"--reorder", "ESPALIER_REORDER", &F::reorder, &R::reorder},
    {"--mask", nullptr, &F::mask, &R::mask},
    {"--round-route", nullptr, &F::round_route, &R::round_route},
};

}  // namespace

void add_mode_flags(CLI::App& app, ModeFlags& flags) {
  app.add_option("--mode", flags.mode,
                 "a preset of the options below: performance (the default), reference (the slow device, everything "
                 "checked) or eager-aligned; see docs/modes.md")
      ->type_name("NAME");
  app.add_option("--device", flags.device,
                 "what computes: auto (the default: a GPU that has room for the model, else cpu), cpu (SIMD kernels), "
                 "reference (plain loops; the same bits, slowly), cuda, cuda:N (an NVIDIA GPU; the same bits), or "
                 "ascend, ascend:N (an Ascend NPU; see docs/ascend.md)")
      ->type_name("NAME");
  app.add_flag("--checked{plain}", flags.checked,
               "check every rule of the device contract on every call; --checked=ascend: also those of an Ascend NPU");
  app.add_flag("--invariants{on}", flags.invariants, "check tables, masks and slots of every tree before its launch");
  app.add_option("--attention", flags.attention,
                 "fused, or eager: over a dense mask (code of its own on the reference and Ascend devices)")
      ->type_name("NAME");
  app.add_option("--cache", flags.cache, "how a tree is kept beside the text: shared, or replicate: on a copy")
      ->type_name("NAME");
  app.add_option("--reorder", flags.reorder, "how an accepted path is kept: fast, or full: everything is moved")
      ->type_name("NAME");
  app.add_option("--mask", flags.mask, "who sees whom in a tree, as told to the device: auto, dense or list")
      ->type_name("NAME");
  app.add_option("--round-route", flags.round_route,
                 "who drives a round of drafting and verifying: auto (the default), host, or device: one launch, where "
                 "device and drafter can")
      ->type_name("NAME");
}

void ask_by_flags(const ModeFlags& flags, ModeRequest& request) {
  for (const ModeWords& words : kModeWords)
    if (const std::optional<std::string>& given = flags.*words.given)
      request.*words.asked = AskedMode{*given, words.flag};
}

void ask_by_environment(const Environment& environment, ModeRequest& request) {
  for (const ModeWords& words : kModeWords) {
    if (words.variable == nullptr || request.*words.asked) continue;
    const std::optional<std::string> value = environment(words.variable);
    if (value && !value->empty()) request.*words.asked = AskedMode{*value, words.variable};
  }
}

}  // namespace espalier
