#include "engine/receipt_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/testing/example_receipt.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

using ::testing::StartsWith;

const std::string& example_json() {
  static const std::string json = receipt_json(example_receipt());
  return json;
}

void expect_example(const FoundReceipt& found, const std::string& where) {
  EXPECT_EQ(found.where, where);
  ASSERT_TRUE(found.receipt.has_value()) << found.error;
  EXPECT_EQ(receipt_json(*found.receipt), example_json());
}

TEST(ReceiptFile, MayHoldOneReceipt) {
  for (const std::string& text : {example_json(), example_json() + "\n", "\n  " + example_json()}) {
    const auto found = find_receipts(text, "f");
    ASSERT_EQ(found.size(), 1u);
    expect_example(found[0], "f");
    EXPECT_EQ(found[0].text, std::nullopt);
  }
}

TEST(ReceiptFile, MayHoldALineForEach) {
  const auto found = find_receipts(example_json() + "\n\n" + example_json() + "\n" + example_json().substr(0, 99), "f");
  ASSERT_EQ(found.size(), 3u);
  expect_example(found[0], "f:1");
  expect_example(found[1], "f:3");
  EXPECT_FALSE(found[2].receipt);
  EXPECT_THAT(found[2].error, StartsWith("f:4:1:")) << "what is damaged does not hide the others";
}

TEST(ReceiptFile, MayHoldAList) {
  const auto found = find_receipts("[" + example_json() + ",\n" + example_json() + "]", "f");
  ASSERT_EQ(found.size(), 2u);
  expect_example(found[1], "f: [1]");
}

TEST(ReceiptFile, MayBeAResponseOfTheServer) {
  const auto found = find_receipts(R"({"id": "x", "choices": [{"message": {"content": "hi"}, "receipt": )" +
                                       example_json() + R"(}, {"text": "ho", "receipt": )" + example_json() +
                                       R"(}, {"text": "none was asked for", "receipt": null}]})",
                                   "f");
  ASSERT_EQ(found.size(), 2u);
  expect_example(found[0], "f: choices[0].receipt");
  EXPECT_EQ(found[0].text, "hi");
  expect_example(found[1], "f: choices[1].receipt");
  EXPECT_EQ(found[1].text, "ho");
}

TEST(ReceiptFile, AnErasedMessageIsATextAndTheEmptyOneOfALastChunkIsNone) {
  const auto found = find_receipts(R"([{"choices": [{"message": {"content": ""}, "receipt": )" + example_json() +
                                       R"(}]}, {"choices": [{"text": "", "receipt": )" + example_json() + R"(}]}])",
                                   "f");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].text, "");
  EXPECT_EQ(found[1].text, std::nullopt);
}

TEST(ReceiptFile, MayBeAStreamOfEvents) {
  const auto found = find_receipts(
      ": wait\n\ndata: {\"choices\": [{\"delta\": {\"content\": \"a\"}}]}\n\n"
      "data: {\"choices\": [{\"text\": \"b\", \"receipt\": " +
          example_json() + "}]}\r\n\r\ndata: [DONE]\n\n",
      "f");
  ASSERT_EQ(found.size(), 1u);
  expect_example(found[0], "f:5: choices[0].receipt");
  EXPECT_EQ(found[0].text, std::nullopt) << "it is only the end of it";
}

TEST(ReceiptFile, HoldsNoneWhereNobodySaysReceipt) {
  EXPECT_TRUE(find_receipts(R"({"choices": [{"text": "a"}]})", "f").empty());
  EXPECT_TRUE(find_receipts("[1, 2]", "f").empty());
  EXPECT_TRUE(find_receipts("{}\n{}\n", "f").empty());
}

TEST(ReceiptFile, NamesWhatShouldBeOneAndIsNot) {
  const auto complaint = [](const std::string& text) {
    const auto found = find_receipts(text, "f");
    return found.size() == 1 && !found[0].receipt ? found[0].error : "none";
  };
  EXPECT_THAT(complaint(""), StartsWith("f:1:1: not JSON"));
  EXPECT_THAT(complaint("receipt"), StartsWith("f:1:1: not JSON"));
  EXPECT_THAT(complaint(R"({"receipt": {}})"), StartsWith("f: receipt: no receipt"));
  EXPECT_THAT(complaint(R"({"receipts": [7]})"), StartsWith("f: receipts[0]: no receipt"));
  EXPECT_THAT(complaint("{\"a\\nb\": {\"receipt\": {}}}"), StartsWith("f: \"a\\x0ab\".receipt: no receipt"))
      << "on one line";
  EXPECT_THAT(complaint(R"({"espalier_receipt": 9})"), StartsWith("f: a receipt of version \"9\""));
}

TEST(ReceiptFile, OfAFolderIsAnyThatMayHoldSomeByName) {
  const TemporaryFolder folder;
  EXPECT_EQ(receipts_at(folder.path())[0].error, folder.path().string() + ": no receipt in it");
  folder.write("b.jsonl", example_json() + "\n" + example_json());
  folder.write("a.json", R"({"choices": []})");
  folder.write("c.txt", "no JSON");
  const auto found = receipts_at(folder.path());
  ASSERT_EQ(found.size(), 2u) << "a file of a folder may hold none";
  expect_example(found[1], (folder / "b.jsonl:2").string());
}

TEST(ReceiptFile, ThatIsNamedHoldsAReceiptOrIsRefused) {
  const TemporaryFolder folder;
  const std::string none = folder.write("a.json", "{}").string(), missing = (folder / "missing").string();
  EXPECT_EQ(receipts_at(none)[0].error, none + ": no receipt in it");
  EXPECT_THAT(receipts_at(missing)[0].error, StartsWith(missing));
  const auto closed = [](const char* what) -> std::string { throw InputError(what); };
  const auto unread = read_receipts("-", "standard input", [&] { return closed("it is closed"); });
  EXPECT_EQ(unread.at(0).where, "-");
  EXPECT_EQ(unread.at(0).error, "it is closed");
  EXPECT_EQ(read_receipts("-", "standard input", [] { return "{}"; }).at(0).where, "standard input");
}

}  // namespace
}  // namespace espalier
