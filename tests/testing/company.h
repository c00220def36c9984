// A tiny teacher of one family with everything that can draft for it, for tests that draw drafters at random.
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "format/testing/temporary_folder.h"
#include "model/eagle_head.h"
#include "model/medusa_head.h"
#include "model/transformer.h"

namespace espalier::testing {

// A tiny model of a family: the one of tests/data, or one of its shape with random blocks. Blocks of 256 need wider
// rows, so their model has those, and a layer less.
struct TinyModel {
  std::string family;
  std::optional<DType> blocks = {};

  auto operator<=>(const TinyModel&) const = default;
};
std::vector<DType> block_types();
std::string name(const TinyModel& model);
Transformer load_tiny(Device& device, const TinyModel& model);

struct Company {
  // With a teacher in blocks everybody has blocks.
  Company(Device& device, const TinyModel& model);

  TemporaryFolder folder;
  Transformer teacher;
  std::optional<Transformer> small;  // another model of the same vocabulary: sometimes right, often wrong
  std::optional<EagleHead> eagle2_head, eagle3_head;
  std::optional<MedusaHead> medusa_head;

  // The head of a drafter of this name; null: it has none of these.
  const EagleHead* eagle(std::string_view drafter) const;
  // The other model where there is one, else the teacher itself.
  const Transformer& draft_model() const { return small ? *small : teacher; }
};

// A further drafter beside those chosen. EAGLE heads of both generations cannot draft together, since they tap the
// teacher at different boundaries: instead of the other generation it is the one that is there.
std::string beside(const std::vector<std::string>& chosen, const std::string& drafter);

}  // namespace espalier::testing
