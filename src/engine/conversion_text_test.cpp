#include "engine/conversion_text.h"

#include <gmock/gmock.h>

namespace espalier {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TensorInfo tensor(const char* name, DType type, std::int64_t columns, std::span<const std::byte> bytes) {
  return {.name = name, .type = type, .shape = {1, columns}, .bytes = bytes};
}

TEST(ConversionText, SumsUpEachChangeAndAll) {
  const std::vector<std::byte> bytes(512'000);
  const TensorInfo wide = tensor("wide", DType::f32, 128'000, bytes);
  const TensorInfo norm = tensor("norm", DType::f32, 2, std::span(bytes).first(8));
  const std::vector<TensorConversion> conversions = {
      {.from = &wide, .to = DType::f16, .odd_rows = true}, {.from = &wide, .to = DType::q8_0}, {.from = &norm}};
  EXPECT_EQ(conversion_lines({conversions[1]}), "wide                                         f32 -> q8_0\n");
  const std::string table = conversion_table(conversions);
  EXPECT_THAT(table, HasSubstr("f32 -> f16, rows are no multiple of 32           1      0.51 MB      0.26 MB\n"));
  EXPECT_THAT(table, HasSubstr("f32 kept                                         1      0.00 MB      0.00 MB\n"));
  EXPECT_THAT(table, HasSubstr("all                                              3      1.02 MB      0.39 MB\n"));
  EXPECT_THAT(table, Not(HasSubstr("note:")));
}

TEST(ConversionText, SaysThatWhatIsLostDoesNotComeBack) {
  const std::vector<std::byte> bytes(36);
  const TensorInfo coarse = tensor("coarse", DType::q4_0, 64, bytes);
  EXPECT_THAT(conversion_table({{.from = &coarse, .to = DType::q8_0}}), HasSubstr("\nnote: what a block format"));
  EXPECT_THAT(conversion_table({{.from = &coarse, .to = DType::q4_0}}), Not(HasSubstr("note:")));
}

}  // namespace
}  // namespace espalier
