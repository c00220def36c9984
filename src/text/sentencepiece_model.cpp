#include "text/sentencepiece_model.h"

#include <bit>
#include <cstring>
#include <optional>

#include "base/error.h"

namespace espalier {
namespace {

static_assert(std::endian::native == std::endian::little, "floats are copied from the file as they are");

enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

// Field numbers of sentencepiece_model.proto.
constexpr std::uint32_t kPieces = 1, kTrainerSpec = 2, kNormalizerSpec = 3;
constexpr std::uint32_t kPieceText = 1, kPieceScore = 2, kPieceType = 3;
constexpr std::uint32_t kModelType = 3, kWhitespaceSuffix = 24, kByteFallback = 35;
constexpr std::uint32_t kCharacterMap = 2, kAddDummyPrefix = 3, kRemoveExtraWhitespaces = 4, kEscapeWhitespaces = 5;

struct Field {
  std::uint32_t number = 0;
  Wire wire = Wire::varint;
  std::uint64_t integer = 0;    // varint
  std::string_view bytes = {};  // all others
};

// Walks the fields of one message.
class MessageReader {
 public:
  MessageReader(std::string_view message, std::string_view where) : rest_(message), where_(where) {}

  std::optional<Field> next() {
    if (rest_.empty()) return std::nullopt;
    const std::uint64_t key = varint();
    Field field{.number = static_cast<std::uint32_t>(key >> 3), .wire = static_cast<Wire>(key & 7)};
    if (key >> 3 == 0 || key >> 3 >= 1u << 29) fail("a field number that cannot be");
    switch (field.wire) {
      case Wire::varint: field.integer = varint(); break;
      case Wire::fixed64: field.bytes = take(8); break;
      case Wire::bytes: field.bytes = take(varint()); break;
      case Wire::fixed32: field.bytes = take(4); break;
      default: fail("an unknown wire type");
    }
    return field;
  }

  std::uint64_t integer(const Field& field) const {
    if (field.wire != Wire::varint) fail("a field of the wrong type");
    return field.integer;
  }
  std::string_view bytes(const Field& field) const {
    if (field.wire != Wire::bytes) fail("a field of the wrong type");
    return field.bytes;
  }
  float number(const Field& field) const {
    if (field.wire != Wire::fixed32) fail("a field of the wrong type");
    float value = 0;
    std::memcpy(&value, field.bytes.data(), sizeof(value));
    return value;
  }
  // An enumeration that starts at 1.
  template <typename Enum>
  Enum choice(const Field& field, Enum last) const {
    const std::uint64_t value = integer(field);
    if (value < 1 || value > static_cast<std::uint64_t>(last)) fail("a value out of range");
    return static_cast<Enum>(value);
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    input_error("{}: expected a SentencePiece model, found {} {} bytes before the end of a message", where_, what,
                rest_.size());
  }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= std::uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    fail("an integer without end");
  }

  std::string_view take(std::uint64_t size) {
    if (size > rest_.size()) fail("a field that is longer than what is left,");
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  std::string_view rest_;
  std::string_view where_;
};

SentencePieceModel::Piece read_piece(std::string_view message, std::string_view where) {
  MessageReader reader(message, where);
  SentencePieceModel::Piece piece;
  while (const auto field = reader.next()) {
    if (field->number == kPieceText) piece.text = reader.bytes(*field);
    if (field->number == kPieceScore) piece.score = reader.number(*field);
    if (field->number == kPieceType) piece.type = reader.choice(*field, SentencePieceModel::Type::byte);
  }
  return piece;
}

void read_trainer_spec(std::string_view message, std::string_view where, SentencePieceModel& model) {
  MessageReader reader(message, where);
  while (const auto field = reader.next()) {
    if (field->number == kModelType) model.algorithm = reader.choice(*field, SentencePieceModel::Algorithm::character);
    if (field->number == kWhitespaceSuffix) model.whitespace_suffix = reader.integer(*field) != 0;
    if (field->number == kByteFallback) model.byte_fallback = reader.integer(*field) != 0;
  }
}

void read_normalizer_spec(std::string_view message, std::string_view where, SentencePieceModel& model) {
  MessageReader reader(message, where);
  while (const auto field = reader.next()) {
    if (field->number == kCharacterMap) model.character_map = reader.bytes(*field);
    if (field->number == kAddDummyPrefix) model.add_dummy_prefix = reader.integer(*field) != 0;
    if (field->number == kRemoveExtraWhitespaces) model.remove_extra_whitespaces = reader.integer(*field) != 0;
    if (field->number == kEscapeWhitespaces) model.escape_whitespaces = reader.integer(*field) != 0;
  }
}

class MessageWriter {
 public:
  void integer(std::uint32_t number, std::uint64_t value) {
    key(number, Wire::varint);
    varint(value);
  }
  void bytes(std::uint32_t number, std::string_view value) {
    key(number, Wire::bytes);
    varint(value.size());
    message_ += value;
  }
  void number(std::uint32_t number, float value) {
    key(number, Wire::fixed32);
    char raw[sizeof(value)];
    std::memcpy(raw, &value, sizeof(value));
    message_.append(raw, sizeof(value));
  }
  std::string take() { return std::move(message_); }

 private:
  void key(std::uint32_t number, Wire wire) { varint(std::uint64_t{number} << 3 | static_cast<std::uint64_t>(wire)); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) message_ += static_cast<char>(value | 0x80);
    message_ += static_cast<char>(value);
  }

  std::string message_;
};

std::string write_piece(const SentencePieceModel::Piece& piece) {
  MessageWriter writer;
  writer.bytes(kPieceText, piece.text);
  writer.number(kPieceScore, piece.score);
  writer.integer(kPieceType, static_cast<std::uint64_t>(piece.type));
  return writer.take();
}

std::string write_trainer_spec(const SentencePieceModel& model) {
  MessageWriter writer;
  writer.integer(kModelType, static_cast<std::uint64_t>(model.algorithm));
  writer.integer(kWhitespaceSuffix, model.whitespace_suffix ? 1 : 0);
  writer.integer(kByteFallback, model.byte_fallback ? 1 : 0);
  return writer.take();
}

std::string write_normalizer_spec(const SentencePieceModel& model) {
  MessageWriter writer;
  writer.bytes(kCharacterMap, model.character_map);
  writer.integer(kAddDummyPrefix, model.add_dummy_prefix ? 1 : 0);
  writer.integer(kRemoveExtraWhitespaces, model.remove_extra_whitespaces ? 1 : 0);
  writer.integer(kEscapeWhitespaces, model.escape_whitespaces ? 1 : 0);
  return writer.take();
}

}  // namespace

SentencePieceModel parse_sentencepiece_model(std::string_view bytes, std::string_view where) {
  MessageReader reader(bytes, where);
  SentencePieceModel model;
  while (const auto field = reader.next()) {
    if (field->number == kPieces) model.pieces.push_back(read_piece(reader.bytes(*field), where));
    if (field->number == kTrainerSpec) read_trainer_spec(reader.bytes(*field), where, model);
    if (field->number == kNormalizerSpec) read_normalizer_spec(reader.bytes(*field), where, model);
  }
  if (model.pieces.empty()) input_error("{}: expected a SentencePiece model, found no pieces", where);
  return model;
}

std::string serialize(const SentencePieceModel& model) {
  MessageWriter writer;
  for (const SentencePieceModel::Piece& piece : model.pieces) writer.bytes(kPieces, write_piece(piece));
  writer.bytes(kTrainerSpec, write_trainer_spec(model));
  writer.bytes(kNormalizerSpec, write_normalizer_spec(model));
  return writer.take();
}

}  // namespace espalier
