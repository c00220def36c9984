#include "model/head_files.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "format/testing/complaint.h"
#include "format/testing/gguf_builder.h"
#include "format/testing/safetensors_builder.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Optional;
using ::testing::StartsWith;

struct HeadTensor {
  std::string name;
  std::vector<std::int64_t> shape = {1};
};

SafetensorsBuilder file_with(const std::vector<HeadTensor>& tensors) {
  SafetensorsBuilder builder;
  for (const auto& [name, shape] : tensors) {
    std::int64_t elements = 1;
    for (std::int64_t size : shape) elements *= size;
    builder.tensor(name, DType::f32, shape, zeros(static_cast<std::size_t>(elements) * 4));
  }
  return builder;
}

std::string opening(const std::filesystem::path& path) {
  return complaint([&] { open_head(path); });
}

// --- opening

TEST(OpenHead, FindsTheWeightsOfAFolder) {
  for (const char* name : {"model.safetensors", "medusa_lm_head.safetensors", "adapter.safetensors"}) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    folder.write("config.json", R"({"a": 1})");
    file_with({{"t"}}).write(folder / name);
    const HeadFiles files = open_head(folder.path());
    EXPECT_TRUE(files.tensors->find("t"));
    EXPECT_EQ(files.config, R"({"a":1})");
    EXPECT_EQ(files.config_file, (folder / "config.json").string());
    EXPECT_EQ(files.gguf, nullptr);
    EXPECT_EQ(files.path, folder.path());
  }
}

TEST(OpenHead, ReadsShards) {
  const TemporaryFolder folder;
  folder.write("config.json", "{}");
  write_sharded_safetensors(folder.path(), {file_with({{"a"}}), file_with({{"b"}})});
  const HeadFiles files = open_head(folder.path());
  EXPECT_TRUE(files.tensors->find("a"));
  EXPECT_TRUE(files.tensors->find("b"));
}

// Medusa's file is a head for certain; what lies beside it may be its teacher.
TEST(OpenHead, PrefersMedusasFile) {
  const TemporaryFolder folder;
  folder.write("config.json", "{}");
  file_with({{"model.norm.weight"}}).write(folder / "model.safetensors");
  file_with({{"0.0.linear.weight"}}).write(folder / "medusa_lm_head.safetensors");
  EXPECT_TRUE(open_head(folder.path()).tensors->find("0.0.linear.weight"));
}

TEST(OpenHead, TakesAFileWithItsConfigBesideIt) {
  const TemporaryFolder folder;
  folder.write("config.json", "{}");
  file_with({{"a"}}).write(folder / "one.safetensors");
  file_with({{"b"}}).write(folder / "two.safetensors");
  EXPECT_TRUE(open_head(folder / "two.safetensors").tensors->find("b"));
  EXPECT_THAT(opening(folder.path()), HasSubstr("got 2 other .safetensors files"));
}

TEST(OpenHead, TakesGgufWithoutAConfig) {
  const TemporaryFolder folder;
  GgufBuilder()
      .set("general.architecture", "eagle3")
      .tensor("fc.weight", DType::f32, {1, 2}, zeros(8))
      .write(folder / "head.gguf");
  const HeadFiles files = open_head(folder / "head.gguf");
  ASSERT_NE(files.gguf, nullptr);
  EXPECT_EQ(files.gguf, files.tensors.get());
  EXPECT_EQ(files.config, "null");
  EXPECT_EQ(classify_head(files), HeadKind::eagle3);
}

TEST(OpenHead, TakesTheGgufOfAFolderWithoutSafetensors) {
  const std::filesystem::path gguf = std::filesystem::path(ESPALIER_TEST_DATA) / "heads/eagle3-llamacpp.gguf";
  const TemporaryFolder folder;
  std::filesystem::copy(gguf, folder / "any.gguf");
  const HeadFiles files = open_head(folder.path());
  ASSERT_NE(files.gguf, nullptr);
  EXPECT_EQ(files.config_file, (folder / "any.gguf").string());
  EXPECT_EQ(files.folder, folder.path());
  std::filesystem::copy(gguf, folder / "other.gguf");
  EXPECT_THAT(opening(folder.path()), HasSubstr("no weights"));
  std::filesystem::copy(gguf, folder / "head-q8_0.gguf");
  EXPECT_EQ(open_head(folder.path()).config_file, (folder / "head-q8_0.gguf").string());
  folder.write("config.json", "{}");
  file_with({{"t"}}).write(folder / "model.safetensors");
  EXPECT_EQ(open_head(folder.path()).gguf, nullptr);
}

TEST(OpenHead, RefusesWhatIsNoHeadInOneLine) {
  const TemporaryFolder folder;
  EXPECT_THAT(opening(folder / "absent"), EndsWith("absent: no such file or folder, expected a draft head"));
  EXPECT_THAT(opening(folder.path()), HasSubstr("no weights, expected model.safetensors, model.safetensors.index.json "
                                                "or medusa_lm_head.safetensors in this folder, got 0"));
  EXPECT_THAT(opening(folder.write("notes.txt", "hello")), HasSubstr("not a GGUF file"));
  file_with({{"t"}}).write(folder / "model.safetensors");
  EXPECT_THAT(opening(folder.path()), HasSubstr("config.json: no such file, expected the head's configuration"));
  EXPECT_THAT(opening(folder / "model.safetensors"), HasSubstr("config.json: no such file"));
  folder.write("config.json", "[]");
  EXPECT_THAT(opening(folder.path()), HasSubstr("config.json: expected a JSON object, got array"));
}

// The command after the last colon must be one that train/convert.py understands.
std::string command_for(const TemporaryFolder& folder, const std::filesystem::path& path) {
  const std::string message = opening(path);
  EXPECT_THAT(message, AllOf(HasSubstr("a pickle is not read, expected safetensors or GGUF"), Not(HasSubstr("\n"))));
  std::string command = message.substr(message.rfind("python "));
  const std::size_t at = command.find(folder.path().string());
  return at == std::string::npos ? command : command.replace(at, folder.path().string().size(), "HEAD");
}

TEST(OpenHead, PrintsTheCommandThatConvertsAPickle) {
  const TemporaryFolder folder;
  const auto pickle = folder.write("head.pt", "");
  EXPECT_EQ(command_for(folder, pickle), "python train/convert.py HEAD/head.pt");
  EXPECT_EQ(command_for(folder, folder.path()), "python train/convert.py HEAD/head.pt");
  folder.write("training_args.bin", "");
  folder.write("pytorch_model.bin", "");
  EXPECT_EQ(command_for(folder, folder.path()), "python train/convert.py HEAD/pytorch_model.bin");
  folder.write("pytorch_model.bin.index.json", "{}");
  EXPECT_EQ(command_for(folder, folder.path()), "python train/convert.py HEAD");
}

TEST(OpenHead, QuotesThePathInTheCommandWhereAShellNeedsIt) {
  const TemporaryFolder folder;
  EXPECT_THAT(opening(folder.write("my head's.pt", "")), EndsWith("/my head'\\''s.pt'"));
}

TEST(OpenHead, PrefersSafetensorsToAPickleBesideThem) {
  const TemporaryFolder folder;
  folder.write("config.json", "{}");
  folder.write("pytorch_model.bin", "");
  file_with({{"t"}}).write(folder / "model.safetensors");
  EXPECT_EQ(opening(folder.path()), "");
}

// --- what it is

HeadKind kind_of(const std::vector<HeadTensor>& tensors, const char* config = "{}") {
  const TemporaryFolder folder;
  folder.write("config.json", config);
  file_with(tensors).write(folder / "model.safetensors");
  return classify_head(open_head(folder.path()));
}

std::string head_refusal(const std::vector<HeadTensor>& tensors, const char* config = "{}") {
  return complaint([&] { kind_of(tensors, config); });
}

TEST(ClassifyHead, KnowsMedusaByItsNamesWhateverTheConfigSays) {
  constexpr const char* kConfig = R"({"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama"})";
  for (const char* name : {"0.0.linear.weight", "medusa_head.2.0.linear.bias", "medusa_heads.blocks.0.layers.0.weight",
                           "blocks.1.layers.0.weight", "0.1.weight"})
    EXPECT_EQ(kind_of({{name}}, kConfig), HeadKind::medusa) << name;
}

TEST(ClassifyHead, KnowsEagle3ByItsFusionAndItsSecondNorm) {
  for (const char* prefix : {"midlayer.", "layers.0.", "model.layers.0.", "draft_model.midlayer."})
    EXPECT_EQ(
        kind_of({{"fc.weight", {2, 4}}, {std::string(prefix) + "hidden_norm.weight"}}, R"({"model_type": "medusa"})"),
        HeadKind::eagle3)
        << prefix;
}

TEST(ClassifyHead, KnowsEagle2ByItsFusionOfTwoHalvesWithoutASecondNorm) {
  const HeadTensor fc = {"fc.weight", {2, 4}}, query = {"layers.0.self_attn.q_proj.weight", {2, 2}};
  EXPECT_EQ(kind_of({fc, query}), HeadKind::eagle2);
  EXPECT_EQ(kind_of({fc, query}, R"({"use_aux_hidden_state": false})"), HeadKind::eagle2) << "that is all it reads";
  EXPECT_EQ(kind_of({{"fusion_fc.weight", {2, 4}}, {"transformer.self_attn.q_proj.weight", {2, 2}}}), HeadKind::eagle2);
  EXPECT_EQ(kind_of({{"model.fc.weight", {2, 4}}, {"model.model.layers.0.self_attn.q_proj.weight", {2, 2}}}),
            HeadKind::eagle2);
  for (const char* relative :
       {"enorm.weight", "hnorm.weight", "embedding_layernorm.weight", "pre_lm_head_layernorm.weight", "norm.weight",
        "layers.0.input_layernorm.weight", "transformer.input_layernorm.weight", "token_map", "d2t", "t2d"})
    EXPECT_THAT(head_refusal({fc, query, {relative}}),
                ::testing::AllOf(HasSubstr(std::string(relative) + ": a head "),
                                 HasSubstr("is not supported, expected an EAGLE-2 head")))
        << relative;
  for (const char* module : {"eh_proj.weight", "mtp.fc.weight", "input_proj.weight"})
    EXPECT_THAT(head_refusal({{module, {2, 4}}, query}), HasSubstr("a module for multi-token prediction")) << module;
  EXPECT_THAT(head_refusal({{"fc.weight", {8}}, query}), HasSubstr("fc.weight: expected a matrix, got [8]"));
}

TEST(ClassifyHead, RefusesRelativesByName) {
  const HeadTensor norm = {"layers.0.hidden_norm.weight"}, fc = {"fc.weight", {2, 6}};
  EXPECT_THAT(
      head_refusal({{"fc.weight", {2, 4}}, {"layers.0.mlp.up_proj.weight"}}),
      HasSubstr("layers.0.self_attn.q_proj.weight: expected a matrix of 2 columns, as an EAGLE-2 head has behind"));
  EXPECT_THAT(head_refusal({fc, norm, {"mask_hidden"}}), HasSubstr("mask_hidden: a P-EAGLE head"));
  EXPECT_THAT(head_refusal({fc, norm}, R"({"eagle_config": {"ptd_token_id": 3}})"),
              HasSubstr("ptd_token_id: a P-EAGLE"));
  EXPECT_THAT(head_refusal({fc, norm}, R"({"architectures": ["PEagleModel"]})"),
              HasSubstr("\"PEagleModel\": a P-EAGLE"));
  EXPECT_THAT(head_refusal({norm}, R"({"use_aux_hidden_state": false})"),
              HasSubstr("config.json: use_aux_hidden_state: expected true, got false"));
  EXPECT_THAT(head_refusal({fc}), HasSubstr("layers.0.hidden_norm.weight is missing, expected an EAGLE-3 head"));
  EXPECT_THAT(head_refusal({{"model.embed_tokens.weight"}}),
              HasSubstr("fc.weight is missing, expected an EAGLE-2 head, an EAGLE-3 head or Medusa heads"));
  EXPECT_THAT(head_refusal({{"medusa_head.0.0.linear.weight"}, {"model.norm.weight"}}),
              HasSubstr("a merged Medusa-2 model (layout C)"));
  for (const char* name : {"0.lora_A.weight", "medusa_heads.1.W_b.weight"})
    EXPECT_THAT(head_refusal({{name}}), HasSubstr("low-rank Medusa heads (layout F) are not supported")) << name;
}

TEST(ClassifyHead, AConfigOfAnyShapeIsHarmless) {
  const HeadTensor norm = {"midlayer.hidden_norm.weight"}, fc = {"fc.weight", {2, 6}};
  for (const char* config : {R"({"architectures": 3})", R"({"architectures": [null]})", R"({"eagle_config": []})",
                             R"({"transformer_layer_config": "x", "mask_token_id": null})"})
    EXPECT_EQ(kind_of({fc, norm}, config), HeadKind::eagle3) << config;
}

TEST(ClassifyHead, RefusesGgufFilesOfOtherArchitectures) {
  const TemporaryFolder folder;
  GgufBuilder().set("general.architecture", "llama").write(folder / "llama.gguf");
  GgufBuilder().write(folder / "nothing.gguf");
  const auto refusal_of = [&](const char* file) { return complaint([&] { classify_head(open_head(folder / file)); }); };
  EXPECT_THAT(refusal_of("llama.gguf"), EndsWith("general.architecture: expected eagle3, got \"llama\""));
  EXPECT_THAT(refusal_of("nothing.gguf"), EndsWith("general.architecture: expected eagle3, got none"));
}

// --- options

TEST(HeadOptions, AreReadStrictly) {
  HeadOptions options;
  parse_head_option("taps=2,15,27", options);
  parse_head_option("rope_theta=1e6", options);
  parse_head_option("norm_output=false", options);
  EXPECT_THAT(options.taps, Optional(ElementsAre(2, 15, 27)));
  EXPECT_THAT(options.rope_theta, Optional(1e6));
  EXPECT_THAT(options.norm_output, Optional(false));
  HeadOptions one;
  parse_head_option("taps=0", one);
  EXPECT_THAT(one.taps, Optional(ElementsAre(0)));
}

TEST(HeadOptions, RefuseAnythingElseInOneLine) {
  const auto refusal_of = [](const std::string& text) {
    HeadOptions options;
    return complaint([&] { parse_head_option(text, options); });
  };
  for (const char* text : {"taps", "taps=", "taps=1,", "taps=,1", "taps=1,,2", "taps=-1", "taps=1 2", "taps=1.5",
                           "taps= 1", "taps=99999999999999999999"})
    EXPECT_EQ(refusal_of(text),
              fmt::format("head option \"{}\": expected boundaries of the teacher such as taps=2,15,27", text));
  for (const char* text : {"rope_theta=", "rope_theta=x", "rope_theta=1e6x", "rope_theta=0", "rope_theta=-1",
                           "rope_theta=inf", "rope_theta=nan", "rope_theta=1e999"})
    EXPECT_EQ(refusal_of(text),
              fmt::format("head option \"{}\": expected a number above 0 such as rope_theta=1e6", text));
  for (const char* text : {"norm_output", "norm_output=yes", "norm_output=1", "norm_output=True"})
    EXPECT_EQ(refusal_of(text), fmt::format("head option \"{}\": expected true or false", text));
  for (const char* text : {"", "=", "tap=1", "TAPS=1", "a\nb=1"})
    EXPECT_THAT(refusal_of(text),
                AllOf(StartsWith("head option \""), Not(HasSubstr("\n")),
                      EndsWith("\": expected taps=N,N,N, rope_theta=NUMBER or norm_output=true|false")));
}

TEST(HeadOptions, AreGivenOnce) {
  HeadOptions options;
  parse_head_option("taps=1", options);
  EXPECT_EQ(complaint([&] { parse_head_option("taps=2", options); }), "head option \"taps=2\": given twice");
}

}  // namespace
}  // namespace espalier
