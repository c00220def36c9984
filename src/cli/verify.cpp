#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/screen.h"
#include "engine/answer_json.h"
#include "engine/receipt_bench.h"
#include "engine/receipt_file.h"
#include "engine/verdict_json.h"
#include "engine/verify_receipt.h"

namespace espalier {
namespace {

struct VerifyFlags {
  std::vector<std::string> files = {};
  EngineFlags engine = {};
  bool json = false;
};

// Says of each receipt what became of it, as a line or in one object at the end.
class Verdicts {
 public:
  explicit Verdicts(bool json) : json_(json) {}

  void refuse(const std::string& where, const std::string& error) {
    counts_.add(ReceiptOutcome::refused);
    if (json_)
      list_.push_back(refusal_json(where, error));
    else
      tell(fmt::format("espalier: {}\n", error));
  }

  void judge(const FoundReceipt& found, const ReceiptVerdict& verdict, const ModelText& text) {
    const Tokenizer& tokenizer = *text.tokenizer;
    const bool other_text = other_text_beside(found, verdict, text);
    counts_.add(verdict.verified() && !other_text ? ReceiptOutcome::verified : ReceiptOutcome::differs);
    if (json_) {
      list_.push_back(verdict_json(found, verdict, other_text, tokenizer));
      return;
    }
    print(fmt::format("{}: {}\n", found.where,
                      other_text ? "NOT VERIFIED: the text beside it is not what its tokens say"
                                 : verdict_text(verdict, *found.receipt, tokenizer)));
    flush_output();
  }

  // The exit code is that of the worst.
  int finish() {
    if (json_)
      print(json_text(verdicts_json(list_, counts_)));
    else if (counts_.all() > 1)
      print(counts_text(counts_) + "\n");
    flush_output();
    return static_cast<int>(counts_.worst());
  }

 private:
  bool json_;
  ReceiptCounts counts_;
  nlohmann::ordered_json list_ = nlohmann::ordered_json::array();
};

std::vector<FoundReceipt> receipts_in(const std::string& path) {
  if (path == "-") return read_receipts("-", "standard input", [] { return read_prompt("-", ""); });
  return receipts_at(path);
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
  ReceiptBench bench(engine_options(flags.engine), screen);
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
