// Random GGUF files: valid ones come back as they were written, damaged ones open or are refused.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "format/gguf.h"
#include "format/gguf_file.h"
#include "format/testing/complaint.h"
#include "format/testing/gguf_builder.h"
#include "format/testing/gguf_example.h"

namespace espalier {
namespace {

using testing::HasSubstr;
using testing::Not;

// Random valid files. What goes in must come out.
class RandomGguf {
 public:
  explicit RandomGguf(std::uint64_t seed) : random_(seed) {
    if (below(2) == 1) builder_.alignment(8u << below(5));
    for (std::uint64_t i = 0, count = below(8); i < count; ++i) add_key(fmt::format("key.{}", i));
    for (std::uint64_t i = 0, count = below(6); i < count; ++i) add_tensor(fmt::format("tensor.{}", i));
  }

  const GgufBuilder& builder() const { return builder_; }

  void expect_equal(const GgufFile& file) const {
    for (const auto& [key, value] : metadata_) {
      const auto found = file.metadata.find(key);
      ASSERT_NE(found, file.metadata.end()) << key;
      EXPECT_EQ(found->second, value) << key;
    }
    ASSERT_EQ(file.tensors.size(), tensors_.size());
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      EXPECT_EQ(file.tensors[i].name, tensors_[i].name);
      EXPECT_EQ(file.tensors[i].type, tensors_[i].type);
      EXPECT_EQ(file.tensors[i].shape, tensors_[i].shape);
      const auto& bytes = file.tensors[i].bytes;
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), data_[i]);
    }
  }

 private:
  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }

  std::string text() {
    std::string result(below(12), ' ');
    for (char& c : result) c = static_cast<char>(below(256));
    return result;
  }

  void add_key(const std::string& key) {
    const auto integer = static_cast<std::int32_t>(random_());
    std::vector<std::int64_t> integers(below(5));
    for (std::int64_t& value : integers) value = static_cast<std::int64_t>(random_());
    std::vector<std::string> texts(below(5));
    for (std::string& value : texts) value = text();
    switch (below(6)) {
      case 0: builder_.set(key, integer), metadata_[key] = {std::int64_t{integer}}; break;
      case 1: builder_.set(key, integer * 0.25), metadata_[key] = {integer * 0.25}; break;
      case 2: builder_.set(key, integer > 0), metadata_[key] = {integer > 0}; break;
      case 3: builder_.set(key, integers), metadata_[key] = {integers}; break;
      case 4: builder_.set(key, texts), metadata_[key] = {texts}; break;
      default: {
        const std::string value = text();
        builder_.set(key, value), metadata_[key] = {value};
      }
    }
  }

  void add_tensor(const std::string& name) {
    const DType type = kLinearTypes[below(std::size(kLinearTypes))];
    TensorInfo info{.name = name, .type = type, .shape = {}, .bytes = {}};
    for (std::uint64_t i = 0, outer = below(3); i < outer; ++i)
      info.shape.push_back(static_cast<std::int64_t>(1 + below(3)));
    info.shape.push_back(static_cast<std::int64_t>(1 + below(2)) * traits(type).block_elements);
    std::int64_t size = row_bytes(type, info.shape.back());
    for (std::size_t i = 0; i + 1 < info.shape.size(); ++i) size *= info.shape[i];
    std::string data(static_cast<std::size_t>(size), '\0');
    for (char& c : data) c = static_cast<char>(random_());
    builder_.tensor(name, type, info.shape, data);
    tensors_.push_back(info);
    data_.push_back(data);
  }

  std::mt19937_64 random_;
  GgufBuilder builder_;
  GgufMetadata metadata_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::string> data_;
};

TEST(GgufProperty, RandomValidFilesRoundTrip) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const RandomGguf random(seed);
    const auto bytes = file_of(random.builder().bytes());
    random.expect_equal(parse_gguf(bytes, "m.gguf"));
  }
}

// Whatever a damaged file says, it opens with tensors inside the file or is refused in one line.
void expect_opens_or_refuses(std::string_view bytes) {
  const std::vector<std::byte> file = file_of(bytes);
  try {
    for (const TensorInfo& tensor : parse_gguf(file, "m.gguf").tensors) {
      EXPECT_GE(tensor.bytes.data(), file.data());
      EXPECT_LE(tensor.bytes.data() + tensor.bytes.size(), file.data() + file.size());
    }
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
  }
}

TEST(GgufProperty, DamagedFilesOpenOrAreRefused) {
  std::mt19937_64 random(1);
  const std::string valid = gguf_example().bytes();
  for (int trial = 0; trial < 5000; ++trial) {
    SCOPED_TRACE(trial);
    std::string bytes = valid;
    bytes[random() % bytes.size()] = static_cast<char>(random());
    if (trial % 4 == 0) bytes.resize(random() % bytes.size());
    expect_opens_or_refuses(bytes);
  }
}

TEST(GgufProperty, EveryByteBeforeTheDataMayTakeAnExtremeValue) {
  const std::string valid = gguf_example().bytes();
  for (std::size_t i = 0; i < gguf_example().data_begin(); ++i)
    for (char value : {'\0', '\x01', '\x7f', '\x80', '\xff'}) {
      std::string bytes = valid;
      bytes[i] = value;
      SCOPED_TRACE(i);
      expect_opens_or_refuses(bytes);
    }
}

}  // namespace
}  // namespace espalier
