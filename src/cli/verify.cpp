#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text_stream.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/screen.h"
#include "engine/answer_json.h"
#include "engine/receipt_file.h"
#include "engine/verify_receipt.h"

namespace espalier {
namespace {

using VerdictJson = nlohmann::ordered_json;

struct VerifyFlags {
  std::vector<std::string> files = {};
  EngineFlags engine = {};
  bool json = false;
};

// The exit code is that of the worst.
enum class Outcome { verified, differs, refused };
constexpr std::string_view kOutcomes[] = {"verified", "not verified", "refused"};

// The engine that receipts are held against: opened when the first of them could be read, and anew for one whose
// weights were computed with in another way.
class ReceiptBench {
 public:
  ReceiptBench(const VerifyFlags& flags, Screen& screen) : asked_(engine_options(flags.engine)), screen_(screen) {}

  // Makes ready for a receipt, and says why that cannot be; empty: it can. Flags beat the receipt, and one that
  // contradicts them is refused. Throws InputError where there is no engine at all.
  std::string open_for(const FoundReceipt& found) {
    const ModelFingerprint& fingerprint = found.receipt->origin.fingerprint;
    const std::optional<WeightMode> weights = parse_weight_mode(fingerprint.weights);
    if (!weights)
      return fmt::format("{}: weights: expected file, f32 or q8_0, got {}", found.where, fingerprint.weights);
    if (asked_.kv_type && fingerprint.kv != name(*asked_.kv_type))
      return fmt::format("{}: kv is {}, expected {}, as --kv says", found.where, fingerprint.kv, name(*asked_.kv_type));
    const WeightMode wanted = asked_.weights.value_or(*weights);
    try {
      if (!verifier_ || engine_->weights != wanted) open(wanted);
    } catch (const InputError& error) {
      if (asked_.weights || wanted == WeightMode::stored) throw;
      return fmt::format("{}: weights {}: {}", found.where, fingerprint.weights, error.what());
    }
    return "";
  }

  ReceiptVerifier& verifier() { return *verifier_; }
  const ModelText& text() const { return *engine_->text; }

 private:
  void open(WeightMode weights) {
    EngineOptions options = asked_;
    options.weights = weights;
    verifier_.reset();
    engine_.reset();
    engine_.emplace(open_engine(options, &screen_));
    verifier_.emplace(*engine_);
  }

  EngineOptions asked_;
  Screen& screen_;
  std::optional<OpenEngine> engine_;
  std::optional<ReceiptVerifier> verifier_;
};

VerdictJson token_json(std::int32_t token, const Tokenizer& tokenizer) {
  return {{"token", token}, {"text", tokenizer.decode(std::span(&token, 1))}};
}

VerdictJson difference_json(const ReceiptDifference& difference, const Tokenizer& tokenizer) {
  VerdictJson object = {{"position", difference.position},
                        {"model", nullptr},
                        {"receipt", nullptr},
                        {"margin", nullptr},
                        {"model_finish_reason", nullptr},
                        {"receipt_finish_reason", nullptr}};
  if (difference.drawn) object["model"] = token_json(*difference.drawn, tokenizer);
  if (difference.stated) object["receipt"] = token_json(*difference.stated, tokenizer);
  if (difference.margin) object["margin"] = *difference.margin;
  if (!difference.finish_reason.empty()) object["model_finish_reason"] = difference.finish_reason;
  if (!difference.stated_reason.empty()) object["receipt_finish_reason"] = difference.stated_reason;
  return object;
}

// Says of each receipt what became of it, as a line or in one object at the end.
class Verdicts {
 public:
  explicit Verdicts(bool json) : json_(json) {}

  void refuse(const std::string& where, const std::string& error) {
    count(Outcome::refused);
    if (json_)
      list_.push_back({{"receipt", where}, {"verdict", kOutcomes[2]}, {"error", error}});
    else
      tell(fmt::format("espalier: {}\n", error));
  }

  void judge(const FoundReceipt& found, const ReceiptVerdict& verdict, const ModelText& text) {
    const Tokenizer& tokenizer = *text.tokenizer;
    const bool other_text =
        verdict.verified() && found.text && !is_text_of(*found.receipt, verdict.text, *found.text, text);
    const Outcome outcome = verdict.verified() && !other_text ? Outcome::verified : Outcome::differs;
    count(outcome);
    if (!json_) {
      print(fmt::format("{}: {}\n", found.where,
                        other_text ? "NOT VERIFIED: the text beside it is not what its tokens say"
                                   : verdict_text(verdict, *found.receipt, tokenizer)));
      flush_output();
      return;
    }
    const Receipt& receipt = *found.receipt;
    list_.push_back(
        {{"receipt", found.where},
         {"verdict", kOutcomes[static_cast<std::size_t>(outcome)]},
         {"prompt_tokens", receipt.prompt.size()},
         {"tokens", receipt.answer.size()},
         {"finish_reason", receipt.finish_reason},
         {"text", verdict.verified() ? VerdictJson(verdict.text) : VerdictJson()},
         {"other_text_beside", other_text},
         {"difference", verdict.difference ? difference_json(*verdict.difference, tokenizer) : VerdictJson()},
         {"seconds", verdict.seconds}});
  }

  int finish() {
    const auto number = [this](Outcome outcome) { return counts_[static_cast<std::size_t>(outcome)]; };
    const int all = counts_[0] + counts_[1] + counts_[2];
    if (json_)
      print(json_text({{"receipts", list_},
                       {"verified", number(Outcome::verified)},
                       {"not_verified", number(Outcome::differs)},
                       {"refused", number(Outcome::refused)}}));
    else if (all > 1)
      print(fmt::format("{} receipts: {} verified, {} not verified, {} refused\n", all, number(Outcome::verified),
                        number(Outcome::differs), number(Outcome::refused)));
    flush_output();
    return static_cast<int>(worst_);
  }

 private:
  void count(Outcome outcome) {
    ++counts_[static_cast<std::size_t>(outcome)];
    worst_ = std::max(worst_, outcome);
  }

  bool json_;
  int counts_[3] = {};
  Outcome worst_ = Outcome::verified;
  VerdictJson list_ = VerdictJson::array();
};

// The files of a folder that may hold receipts, by name.
std::vector<std::filesystem::path> receipt_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (const auto ending = entry.path().extension(); ending == ".json" || ending == ".jsonl")
      files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

std::vector<FoundReceipt> receipts_in_file(const std::string& file) {
  try {
    if (file == "-") return find_receipts(read_prompt("-", ""), "standard input");
    return find_receipts(read_text_stream(file), file);
  } catch (const InputError& error) {
    return {{.where = file, .error = error.what()}};
  }
}

// A folder may hold other files as well, a run's for one; a file that is named holds receipts.
std::vector<FoundReceipt> receipts_in(const std::string& path) {
  std::vector<FoundReceipt> all;
  std::error_code error;
  if (path != "-" && std::filesystem::is_directory(path, error)) {
    for (const std::filesystem::path& file : receipt_files(path))
      for (FoundReceipt& found : receipts_in_file(file.string())) all.push_back(std::move(found));
  } else {
    all = receipts_in_file(path);
  }
  const std::string where = path == "-" ? "standard input" : path;
  if (all.empty()) all.push_back({.where = where, .error = where + ": no receipt in it"});
  return all;
}

void judge_one(const FoundReceipt& found, ReceiptBench& bench, Verdicts& verdicts) {
  const std::string reason = found.receipt ? bench.open_for(found) : found.error;
  if (!reason.empty()) return verdicts.refuse(found.where, reason);
  try {
    verdicts.judge(found, bench.verifier().verify(*found.receipt, found.where), bench.text());
  } catch (const InputError& error) {  // the others can be true all the same
    verdicts.refuse(found.where, error.what());
  }
}

int run_verify(const VerifyFlags& flags) {
  if (flags.engine.options.context) throw InputError("--context: not with verify, which takes it from the receipt");
  Screen screen(flags.engine.verbose);
  ReceiptBench bench(flags, screen);
  Verdicts verdicts(flags.json);
  for (const std::string& path : flags.files)
    for (const FoundReceipt& found : receipts_in(path)) judge_one(found, bench, verdicts);
  return verdicts.finish();
}

}  // namespace

Command add_verify(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("verify", "tell whether receipts are true: that the model says this (docs/receipts.md)");
  auto flags = std::make_shared<VerifyFlags>();
  command
      ->add_option("FILE", flags->files,
                   "receipts, one or many, or responses of the server that carry some; a folder; - is standard input")
      ->required();
  command->add_flag("--json", flags->json, "print one JSON object");
  add_engine_flags(*command, flags->engine);
  return [flags] { return run_verify(*flags); };
}

}  // namespace espalier
