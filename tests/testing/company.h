// A tiny teacher of one family with everything that can draft for it, for tests that draw drafters at random.
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "format/testing/temporary_folder.h"
#include "model/eagle3_head.h"
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
  std::optional<Eagle3Head> eagle3_head;
  std::optional<MedusaHead> medusa_head;

  // The other model where there is one, else the teacher itself.
  const Transformer& draft_model() const { return small ? *small : teacher; }
};

}  // namespace espalier::testing
