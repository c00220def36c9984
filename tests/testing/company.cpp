#include "testing/company.h"

#include "testing/engine.h"
#include "testing/random_heads.h"

namespace espalier::testing {
namespace {

std::filesystem::path made(const std::filesystem::path& folder) {
  std::filesystem::create_directory(folder);
  return folder;
}

}  // namespace

Company::Company(Device& device, const std::string& family)
    : teacher(load_transformer(device, data_path("tiny/" + family))) {
  Transformer other = load_transformer(device, data_path("tiny/llama2"));
  if (other.config().vocabulary == teacher.config().vocabulary) small = std::move(other);
  const auto eagle3 = made(folder / "eagle3"), medusa = made(folder / "medusa");
  write_random_eagle3(eagle3, teacher.config(), 7);
  write_random_medusa(medusa, teacher.config(), 8);
  eagle3_head.emplace(teacher, open_head(eagle3));
  medusa_head.emplace(teacher, open_head(medusa));
}

}  // namespace espalier::testing
