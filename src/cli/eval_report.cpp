#include "cli/eval_report.h"

#include <CLI/CLI.hpp>

#include "cli/environment.h"
#include "cli/output.h"
#include "experiments/suite_plan.h"
#include "report/run_words.h"

namespace espalier {

void add_report_flags(CLI::App& app, ReportFlags& flags) {
  app.add_option("runs", flags.runs, "directories of finished runs and of suites")->required()->type_name("RUN");
  app.add_option("-o,--out", flags.out, "the directory of the report, which must not exist yet")
      ->required()
      ->type_name("DIR");
  app.add_flag("--force", flags.force, "replace an earlier report in DIR");
  app.add_option("--embed", flags.embed, "bytes of trees inside the page; further ones lie in files beside it")
      ->capture_default_str()
      ->type_name("BYTES");
  app.add_option("--model", flags.model, "take the words of tokens from this model instead of the runs' own")
      ->type_name("PATH");
}

int run_report(const ReportFlags& flags) {
  ReportFolder folder(flags.out, flags.force);
  const std::vector<ReportSource> sources = read_sources({flags.runs.begin(), flags.runs.end()});
  const ReportOptions options{.paper = paper_throughput(process_places()),
                              .words = words_of_runs(flags.model, user_cache_folder(process_environment)),
                              .embedded_bytes = flags.embed};
  const Losslessness lossless = write_report(sources, options, folder);
  folder.publish();
  std::string shown = losslessness_text(lossless) + "\n";
  for (const std::string& failure : lossless.failures) shown += failure + "\n";
  print(shown + (std::filesystem::path(flags.out) / "index.html").string() + "\n");
  flush_output();
  return lossless.holds() ? 0 : 1;
}

}  // namespace espalier
