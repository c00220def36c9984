#include "device/activations.h"

namespace espalier {

std::string_view name(Activations activations) {
  return activations == Activations::bf16 ? "bf16" : "two-terms";
}

std::optional<Activations> parse_activations(std::string_view word) {
  for (const Activations activations : {Activations::two_terms, Activations::bf16})
    if (word == name(activations)) return activations;
  return std::nullopt;
}

}  // namespace espalier
