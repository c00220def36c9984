#include "cli/modes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <span>
#include <string_view>

#include "base/error.h"

namespace espalier {
namespace {

using Values = std::array<std::string_view, 3>;  // unused ones are empty

constexpr Values kModes = {"performance", "reference", "eager-aligned"};

// One option of the table in docs/modes.md: how it is set, what it may be, and what each mode makes of it.
struct Option {
  const char* flag;
  const char* variable;  // nullptr: only by flag and mode
  std::optional<std::string> ModeFlags::*given;
  std::string ModeOptions::*result;
  Values values;
  Values presets;  // in the order of kModes
};

using F = ModeFlags;
using O = ModeOptions;
// clang-format off
constexpr Option kOptions[] = {
    {"--device",     nullptr,              &F::device,     &O::device,     {"cpu", "reference"},       {"cpu", "reference", "cpu"}},
    {"--checked",    nullptr,              &F::checked,    &O::checked,    {"off", "plain", "ascend"}, {"off", "plain", "off"}},
    {"--invariants", nullptr,              &F::invariants, &O::invariants, {"off", "on"},              {"off", "on", "off"}},
    {"--attention",  "ESPALIER_ATTENTION", &F::attention,  &O::attention,  {"fused", "eager"},         {"fused", "eager", "eager"}},
    {"--cache",      nullptr,              &F::cache,      &O::cache,      {"shared", "replicate"},    {"shared", "replicate", "shared"}},
    {"--reorder",    "ESPALIER_REORDER",   &F::reorder,    &O::reorder,    {"fast", "full"},           {"fast", "full", "fast"}},
    {"--mask",       nullptr,              &F::mask,       &O::mask,       {"auto", "dense", "list"},  {"auto", "dense", "dense"}},
};
// clang-format on

// A value and who set it, in the words a message can use.
struct ModeSetting {
  std::string value;
  std::string source;
};

void check_value(const ModeSetting& setting, const Values& values) {
  if (!setting.value.empty() && std::ranges::find(values, setting.value) != values.end()) return;
  const auto used = std::span(values).first(values.back().empty() ? 2 : 3);
  input_error("{}: expected {}, got '{}'", setting.source, fmt::join(used, " or "), setting.value);
}

// What flag or environment say, if they do.
std::optional<ModeSetting> asked_for(const std::optional<std::string>& given, const char* flag, const char* variable,
                                     const Environment& environment) {
  if (given) return ModeSetting{*given, flag};
  if (variable == nullptr) return std::nullopt;
  const std::optional<std::string> value = environment(variable);
  if (!value || value->empty()) return std::nullopt;
  return ModeSetting{*value, variable};
}

ModeSetting choose_mode(const ModeFlags& flags, const Environment& environment) {
  const ModeSetting mode =
      asked_for(flags.mode, "--mode", "ESPALIER_MODE", environment).value_or(ModeSetting{std::string(kModes[0]), ""});
  check_value(mode, kModes);
  return mode;
}

ModeSetting choose(const Option& option, const ModeFlags& flags, const Environment& environment,
                   const ModeSetting& mode) {
  if (const auto asked = asked_for(flags.*option.given, option.flag, option.variable, environment)) {
    check_value(*asked, option.values);
    return *asked;
  }
  const auto index = static_cast<std::size_t>(std::ranges::find(kModes, mode.value) - kModes.begin());
  return {std::string(option.presets[index]), mode.source};
}

// "--attention eager", "ESPALIER_ATTENTION=eager", "--mode reference".
std::string shown(const ModeSetting& setting, const ModeSetting& mode) {
  const std::string& value = setting.source == mode.source ? mode.value : setting.value;
  return fmt::format("{}{}{}", setting.source, setting.source.starts_with("--") ? " " : "=", value);
}

}  // namespace

std::optional<std::string> process_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

void add_mode_flags(CLI::App& app, ModeFlags& flags) {
  app.add_option("--mode", flags.mode,
                 "a preset of the options below: performance (the default), reference (the slow device, everything "
                 "checked) or eager-aligned; see docs/modes.md")
      ->type_name("NAME");
  app.add_option("--device", flags.device,
                 "what computes: cpu (SIMD kernels), or reference (plain loops; the same bits, slowly)")
      ->type_name("NAME");
  app.add_flag("--checked{plain}", flags.checked,
               "check every rule of the device contract on every call; --checked=ascend: also those of an Ascend NPU");
  app.add_flag("--invariants{on}", flags.invariants, "check tables, masks and slots of every tree before its launch");
  app.add_option("--attention", flags.attention, "fused, or eager: the plain route over a dense mask")
      ->type_name("NAME");
  app.add_option("--cache", flags.cache, "how a tree is kept beside the text: shared, or replicate: on a copy")
      ->type_name("NAME");
  app.add_option("--reorder", flags.reorder, "how an accepted path is kept: fast, or full: everything is moved")
      ->type_name("NAME");
  app.add_option("--mask", flags.mask, "who sees whom in a tree, as told to the device: auto, dense or list")
      ->type_name("NAME");
}

ModeOptions resolve_modes(const ModeFlags& flags, const Environment& environment) {
  const ModeSetting mode = choose_mode(flags, environment);
  ModeOptions result;
  result.mode = mode.value;
  ModeSetting attention, mask;
  for (const Option& option : kOptions) {
    const ModeSetting setting = choose(option, flags, environment, mode);
    result.*option.result = setting.value;
    if (option.result == &ModeOptions::attention) attention = setting;
    if (option.result == &ModeOptions::mask) mask = setting;
  }
  if (attention.value == "eager" && mask.value == "list")
    input_error("{} with {}: eager attention needs the dense mask", shown(mask, mode), shown(attention, mode));
  return result;
}

void apply_modes(const ModeOptions& modes, DecoderOptions& options) {
  options.attention = modes.attention == "eager" ? AttentionOp::eager : AttentionOp::fused;
  options.mask = modes.mask == "dense"  ? MaskChoice::dense
                 : modes.mask == "list" ? MaskChoice::list
                                        : MaskChoice::automatic;
  options.kv.strategy = modes.cache == "replicate" ? CacheStrategy::replicate : CacheStrategy::shared;
  options.kv.reorder = modes.reorder == "full" ? Reorder::full : Reorder::fast;
  options.invariants = modes.invariants == "on";
  options.kv.check = options.invariants;
}

}  // namespace espalier
