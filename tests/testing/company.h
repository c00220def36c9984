// A tiny teacher of one family with everything that can draft for it, for tests that draw drafters at random.
#pragma once

#include <optional>
#include <string>

#include "format/testing/temporary_folder.h"
#include "model/eagle3_head.h"
#include "model/medusa_head.h"
#include "model/transformer.h"

namespace espalier::testing {

struct Company {
  Company(Device& device, const std::string& family);

  TemporaryFolder folder;
  Transformer teacher;
  std::optional<Transformer> small;  // another model of the same vocabulary: sometimes right, often wrong
  std::optional<Eagle3Head> eagle3_head;
  std::optional<MedusaHead> medusa_head;

  // The other model where there is one, else the teacher itself.
  const Transformer& draft_model() const { return small ? *small : teacher; }
};

}  // namespace espalier::testing
