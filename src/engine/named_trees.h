// Static trees by name: NAME is data/trees/NAME.json below one of an application's roots.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "engine/listener.h"
#include "engine/places.h"

namespace espalier {

// The file of every name there is; of two with one name, that below the first root.
std::map<std::string, std::filesystem::path> named_trees(const Places& places);
// "data/trees is in none of A, B", for when there are none.
std::string no_named_trees(const Places& places);
// A table of them: rows, leaves, nodes per depth. A list that cannot be read is passed over, and the listener hears
// why.
std::string named_trees_text(const Places& places, Listener& listener);

// The tree of this name. Throws InputError with the names there are.
std::filesystem::path find_named_tree(const std::string& name, const Places& places);
// What `static:TEXT` means: the file at this path, else the tree of this name. A text with a / or that ends in .json is
// a path, there or not.
std::filesystem::path find_tree(const std::string& text, const Places& places);

}  // namespace espalier
