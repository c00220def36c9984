// The keys that open the server. Only their digests are kept, so that no log, dump or core of ours shows one. Immutable
// after it was filled, so that threads may share it.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "serve/http/http_types.h"

namespace espalier {

class ApiKeys {
 public:
  // A key is 1 to 512 visible ASCII characters; one that is there already is not added again. Throws InputError that
  // names `where`, never the key.
  void add(std::string_view key, std::string_view where);
  // One key per line; blank lines and those that begin with '#' are passed over. InputError names path and line.
  void add_file(const std::filesystem::path& path);

  bool empty() const { return digests_.empty(); }
  std::size_t size() const { return digests_.size(); }

  // Which key this is, counted in the order they were added. Takes the same time for all wrong keys of a length.
  std::optional<int> find(std::string_view key) const;
  // The key in `Authorization: Bearer` or `X-Api-Key`; where both are there, either may be the right one.
  std::optional<int> find(const HttpHead& head) const;

 private:
  using Digest = std::array<char, 64>;
  std::vector<Digest> digests_;
};

}  // namespace espalier
