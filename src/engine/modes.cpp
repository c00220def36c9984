#include "engine/modes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "base/error.h"

namespace espalier {
namespace {

using Values = std::array<std::string_view, 6>;  // unused ones are empty

constexpr Values kModes = {"performance", "reference", "eager-aligned"};

// One option of the table in docs/modes.md: what it may be, and what each mode makes of it.
struct Option {
  std::optional<AskedMode> ModeRequest::*asked;
  std::string ModeOptions::*result;
  Values values;
  Values presets;  // in the order of kModes
};

using R = ModeRequest;
using O = ModeOptions;
// clang-format off
constexpr Option kOptions[] = {
    {&R::device,     &O::device,     {"auto", "cpu", "reference", "cuda", "ascend"}, {"auto", "reference", "auto"}},
    {&R::checked,    &O::checked,    {"off", "plain", "ascend"}, {"off", "plain", "off"}},
    {&R::invariants, &O::invariants, {"off", "on"},              {"off", "on", "off"}},
    {&R::attention,  &O::attention,  {"fused", "eager"},         {"fused", "eager", "eager"}},
    {&R::cache,      &O::cache,      {"shared", "replicate"},    {"shared", "replicate", "shared"}},
    {&R::reorder,    &O::reorder,    {"fast", "full"},           {"fast", "full", "fast"}},
    {&R::mask,       &O::mask,       {"auto", "dense", "list"},  {"auto", "dense", "dense"}},
    {&R::round_route, &O::round_route, {"auto", "host", "device"}, {"auto", "host", "auto"}},
};
// clang-format on

// "cuda:1" is a value where "cuda" is, and so it is with ascend.
std::string_view without_number(std::string_view value) {
  const auto colon = value.find(':');
  const std::string_view number = colon == value.npos ? "" : value.substr(colon + 1);
  const bool numbered = (value.starts_with("cuda:") || value.starts_with("ascend:")) && !number.empty() &&
                        number.size() <= 3 && number.find_first_not_of("0123456789") == number.npos;
  return numbered ? value.substr(0, colon) : value;
}

void check_value(const AskedMode& asked, const Values& values) {
  if (!asked.value.empty() && std::ranges::find(values, without_number(asked.value)) != values.end()) return;
  const auto used = std::span(values.begin(), std::ranges::find(values, ""));
  const bool numbered = std::ranges::find(used, "cuda") != used.end();
  input_error("{}: expected {}{}, got '{}'", asked.by, fmt::join(used, " or "),
              numbered ? ", or cuda:N or ascend:N" : "", asked.value);
}

AskedMode choose_mode(const ModeRequest& request) {
  AskedMode mode = request.mode.value_or(AskedMode{std::string(kModes[0]), ""});
  check_value(mode, kModes);
  return mode;
}

// What was asked for, else what the mode says.
AskedMode choose(const Option& option, const ModeRequest& request, const AskedMode& mode) {
  if (const std::optional<AskedMode>& asked = request.*option.asked) {
    check_value(*asked, option.values);
    return *asked;
  }
  const auto index = static_cast<std::size_t>(std::ranges::find(kModes, mode.value) - kModes.begin());
  return {std::string(option.presets[index]), mode.by};
}

// "--attention eager", "ESPALIER_ATTENTION=eager", "--mode reference".
std::string shown(const AskedMode& setting, const AskedMode& mode) {
  const std::string& value = setting.by == mode.by ? mode.value : setting.value;
  return fmt::format("{}{}{}", setting.by, setting.by.starts_with("--") ? " " : "=", value);
}

}  // namespace

ModeOptions resolve_modes(const ModeRequest& request) {
  const AskedMode mode = choose_mode(request);
  ModeOptions result;
  result.mode = mode.value;
  AskedMode attention, mask, device;
  for (const Option& option : kOptions) {
    const AskedMode setting = choose(option, request, mode);
    result.*option.result = setting.value;
    if (option.result == &ModeOptions::attention) attention = setting;
    if (option.result == &ModeOptions::mask) mask = setting;
    if (option.result == &ModeOptions::device) device = setting;
  }
  if (attention.value == "eager" && mask.value == "list")
    input_error("{} with {}: eager attention needs the dense mask", shown(mask, mode), shown(attention, mode));
  // No device is open yet to ask needs_dense_mask(), which decides in decode/decoder_choices: this only says it before
  // a model is loaded, and who asked.
  if (device.value.starts_with("ascend") && mask.value == "list")
    input_error("{} with {}: this device needs the dense mask", shown(mask, mode), shown(device, mode));
  return result;
}

void apply_modes(const ModeOptions& modes, DecoderOptions& options) {
  options.attention = modes.attention == "eager" ? AttentionOp::eager : AttentionOp::fused;
  options.mask = modes.mask == "dense"  ? MaskChoice::dense
                 : modes.mask == "list" ? MaskChoice::list
                                        : MaskChoice::automatic;
  options.round_route = modes.round_route == "host"     ? RoundRoute::host
                        : modes.round_route == "device" ? RoundRoute::device
                                                        : RoundRoute::automatic;
  options.kv.strategy = modes.cache == "replicate" ? CacheStrategy::replicate : CacheStrategy::shared;
  options.kv.reorder = modes.reorder == "full" ? Reorder::full : Reorder::fast;
  options.invariants = modes.invariants == "on";
  options.kv.check = options.invariants;
}

}  // namespace espalier
