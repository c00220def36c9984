#include "engine/named_trees.h"

#include <fmt/ranges.h>

#include <string_view>
#include <vector>

#include "base/error.h"
#include "tree/choice_tree.h"

namespace espalier {

namespace fs = std::filesystem;

namespace {

constexpr const char* kFolder = "data/trees";
constexpr std::string_view kExtension = ".json";

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored) && !fs::is_directory(path, ignored);
}

}  // namespace

std::map<std::string, fs::path> named_trees(const Places& places) {
  std::map<std::string, fs::path> trees;
  std::error_code ignored;
  for (const fs::path& root : places.roots)
    for (const fs::directory_entry& entry : fs::directory_iterator(root / kFolder, ignored))
      if (entry.path().extension() == kExtension && is_file(entry.path()))
        trees.try_emplace(entry.path().stem().string(), entry.path().lexically_normal());
  return trees;
}

std::string no_named_trees(const Places& places) {
  std::vector<std::string> roots;
  for (const fs::path& root : places.roots) roots.push_back(root.lexically_normal().string());
  return roots.empty() ? "trees have no names here: give --tree static:FILE"
                       : fmt::format("{} is in none of {}", kFolder, fmt::join(roots, ", "));
}

std::string named_trees_text(const Places& places, Listener& listener) {
  std::string text = fmt::format("{:<25} {:>4} {:>7}  {}\n", "name", "rows", "leaves", "nodes per depth");
  for (const auto& [name, file] : named_trees(places)) {
    try {
      const ChoiceTree tree = ChoiceTree::read(file, {});
      text +=
          fmt::format("{:<25} {:>4} {:>7}  {}\n", name, tree.size(), tree.leaves(), fmt::join(tree.level_sizes(), "/"));
    } catch (const InputError& error) {
      listener.remark(fmt::format("passes over {}", error.what()));
    }
  }
  return text;
}

fs::path find_tree(const std::string& text, const Places& places) {
  if (text.find('/') != std::string::npos || text.ends_with(kExtension) || is_file(text)) return text;
  return find_named_tree(text, places);
}

fs::path find_named_tree(const std::string& text, const Places& places) {
  const std::map<std::string, fs::path> trees = named_trees(places);
  if (const auto found = trees.find(text); found != trees.end()) return found->second;
  if (trees.empty()) input_error("--tree static:{}: no such file, and {}", text, no_named_trees(places));
  std::vector<std::string> names;
  for (const auto& [name, file] : trees) names.push_back(name);
  input_error("--tree static:{}: no such file or name, expected one of {}", text, fmt::join(names, ", "));
}

}  // namespace espalier
