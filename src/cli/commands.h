// One function per subcommand: it adds its flags to the app and returns what runs when the subcommand was chosen.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace espalier {

// The exit code: 0, 1 for a failure that has been reported, or kInterrupted.
using Command = std::function<int()>;

inline constexpr int kInterrupted = 130;  // as shells have it: 128 and the number of the signal

Command add_generate(CLI::App& app);
Command add_chat(CLI::App& app);
Command add_serve(CLI::App& app);
Command add_compare(CLI::App& app);
Command add_tree(CLI::App& app);
Command add_inspect(CLI::App& app);
Command add_tokenize(CLI::App& app);
Command add_perplexity(CLI::App& app);
Command add_bench(CLI::App& app);
Command add_bench_serve(CLI::App& bench);
Command add_eval(CLI::App& app);
Command add_trace(CLI::App& app);
Command add_replay(CLI::App& app);
Command add_quantize(CLI::App& app);
Command add_selftest(CLI::App& app);
Command add_verify(CLI::App& app);

}  // namespace espalier
