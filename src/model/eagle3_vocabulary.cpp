#include "model/eagle3_vocabulary.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "model/weight_reader.h"

namespace espalier {
namespace {

std::vector<std::int64_t> read_d2t(const TensorInfo& d2t, std::int64_t size, std::string_view file) {
  const bool integers = d2t.type == DType::i64 || d2t.type == DType::i32;
  if (!integers || d2t.shape != std::vector{size})
    input_error("{}: d2t: expected i64 [{}], got {} [{}]", file, size, name(d2t.type), fmt::join(d2t.shape, ", "));
  return widened_integers(d2t);
}

// Clamped first: a sum of wild values must not overflow, and stays out of range.
std::int64_t token_of(std::int64_t value, std::int64_t index, D2tMeaning meaning) {
  constexpr std::int64_t kWild = std::int64_t{1} << 40;
  return std::clamp(value, -kWild, kWild) + (meaning == D2tMeaning::offset ? index : 0);
}

// Marks in `members` what the ids are; each must be in range and occur once.
std::vector<std::int32_t> checked_ids(const std::vector<std::int64_t>& d2t, const VocabularyTables& tables,
                                      std::string_view file, std::vector<std::uint8_t>& members) {
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < d2t.size(); ++i) {
    const std::int64_t id = token_of(d2t[i], static_cast<std::int64_t>(i), tables.meaning);
    if (id < 0 || id >= tables.vocabulary)
      input_error("{}: d2t: element {}: expected a token 0 to {}, got {}", file, i, tables.vocabulary - 1, id);
    std::uint8_t& member = members[static_cast<std::size_t>(id)];
    if (member) input_error("{}: d2t: element {}: expected each token once, got {} twice", file, i, id);
    member = 1;
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

std::vector<std::uint8_t> read_t2d(const TensorInfo& t2d, std::int64_t vocabulary, std::string_view file) {
  if (t2d.type != DType::u8 || t2d.shape != std::vector{vocabulary})
    input_error("{}: t2d: expected bool [{}], got {} [{}]", file, vocabulary, name(t2d.type),
                fmt::join(t2d.shape, ", "));
  std::vector<std::uint8_t> members;
  for (std::byte marked : t2d.bytes) members.push_back(marked != std::byte{0});
  return members;
}

}  // namespace

std::vector<std::int32_t> read_target_ids(const VocabularyTables& tables, std::string_view file) {
  const std::int64_t size = tables.draft_vocabulary;
  if (!tables.d2t) {
    if (size != tables.vocabulary)
      input_error("{}: d2t is missing, expected [{}] for a draft vocabulary smaller than {}", file, size,
                  tables.vocabulary);
    std::vector<std::int32_t> own(static_cast<std::size_t>(size));
    std::iota(own.begin(), own.end(), 0);
    return own;
  }
  const std::vector<std::int64_t> d2t = read_d2t(*tables.d2t, size, file);
  std::vector<std::uint8_t> members(static_cast<std::size_t>(tables.vocabulary));
  std::vector<std::int32_t> ids = checked_ids(d2t, tables, file, members);
  std::vector<std::uint8_t> said;
  if (tables.t2d) said = read_t2d(*tables.t2d, tables.vocabulary, file);
  // Trainers that forgot to fill the table leave zeros: a vocabulary of the first tokens that nobody meant.
  const bool zero = std::ranges::all_of(d2t, [](std::int64_t offset) { return offset == 0; });
  if (tables.meaning == D2tMeaning::offset && zero && size < tables.vocabulary && said != members)
    input_error("{}: d2t: all zero for {} of {} tokens, expected a filled table", file, size, tables.vocabulary);
  if (!tables.t2d) return ids;
  for (std::size_t token = 0; token < members.size(); ++token)
    if (said[token] != members[token])
      input_error("{}: t2d: token {}: expected {} as d2t says, got {}", file, token, members[token] != 0,
                  said[token] != 0);
  return ids;
}

}  // namespace espalier
