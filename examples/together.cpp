// Several questions answered together, each printed when it ends; one of them is cancelled.
//
//   together MODEL

#include <espalier/espalier.h>

#include <iostream>

namespace {

int answer(const std::string& model) {
  const espalier::Engine engine = espalier::Engine::open(model, {.context = 512});
  espalier::Requests requests = engine.requests({.parallel = 2});  // the third waits for one of the others
  const auto ask = [&](const std::string& question, std::int64_t tokens) {
    return requests.submit(
        {.messages = {{"user", question}}}, {.max_tokens = tokens}, [question](const espalier::Ending& ending) {
          std::cout << question << " (" << name(ending.reply.end) << ")\n" << ending.reply.text << "\n";
          if (!ending.error.empty()) std::cout << "  failed: " << ending.error << "\n";
        });
  };
  ask("Name a fruit tree.", 32);
  const espalier::RequestId long_one = ask("Name all fruit trees.", 400);
  ask("And a nut tree?", 32);
  for (int step = 0; step < 4; ++step) requests.step();
  requests.cancel(long_one);  // ends as far as it came, and the others go on
  requests.run();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: together MODEL\n";
    return 2;
  }
  try {
    return answer(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << "together: " << error.what() << "\n";
    return 1;
  }
}
