#include "testing/company.h"

#include <algorithm>
#include <iterator>

#include "testing/engine.h"
#include "testing/random_blocks.h"
#include "testing/random_heads.h"

namespace espalier::testing {
namespace {

std::filesystem::path made(const std::filesystem::path& folder) {
  std::filesystem::create_directory(folder);
  return folder;
}

ModelConfig shape_for_blocks(const std::string& family, DType type) {
  ModelConfig config = load_config(data_path("tiny/" + family));
  if (const std::int64_t block = traits(type).block_elements; block > 32) {
    config.hidden = config.intermediate = block;
    config.layers = 3;
  }
  return config;
}

}  // namespace

std::vector<DType> block_types() {
  std::vector<DType> types;
  std::ranges::copy_if(kLinearTypes, std::back_inserter(types), is_block_quantised);
  return types;
}

std::string name(const TinyModel& model) {
  return model.blocks ? model.family + " in " + std::string(name(*model.blocks)) : model.family;
}

Transformer load_tiny(Device& device, const TinyModel& model) {
  if (!model.blocks) return load_transformer(device, data_path("tiny/" + model.family));
  ModelConfig config = shape_for_blocks(model.family, *model.blocks);
  ModelWeights weights = load_weights(device, config, RandomBlocks(config, *model.blocks, 9),
                                      TensorNaming::hugging_face, WeightMode::stored, {});
  return Transformer(device, std::move(config), std::move(weights));
}

Company::Company(Device& device, const TinyModel& model) : teacher(load_tiny(device, model)) {
  Transformer other = load_tiny(device, {"llama2", model.blocks});
  if (other.config().vocabulary == teacher.config().vocabulary) small = std::move(other);
  const auto eagle2 = made(folder / "eagle2"), eagle3 = made(folder / "eagle3"), medusa = made(folder / "medusa");
  write_random_eagle2(eagle2, teacher.config(), 9);
  write_random_eagle3(eagle3, teacher.config(), 7);
  write_random_medusa(medusa, teacher.config(), 8);
  const HeadOptions options{.weights = model.blocks ? WeightMode::q8_0 : WeightMode::stored};
  eagle2_head.emplace(teacher, open_head(eagle2), options);
  eagle3_head.emplace(teacher, open_head(eagle3), options);
  medusa_head.emplace(teacher, open_head(medusa), options);
}

std::string beside(const std::vector<std::string>& chosen, const std::string& drafter) {
  const auto is_eagle = [](const std::string& name) { return name.starts_with("eagle"); };
  const auto there = std::ranges::find_if(chosen, is_eagle);
  return is_eagle(drafter) && there != chosen.end() ? *there : drafter;
}

const EagleHead* Company::eagle(std::string_view drafter) const {
  if (drafter == "eagle2") return &*eagle2_head;
  return drafter == "eagle3" ? &*eagle3_head : nullptr;
}

}  // namespace espalier::testing
