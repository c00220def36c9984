// One answer, shown as it is made, with drafts by the best head that was trained for the model.
//
//   one_answer MODEL HEADS "Why is the sky blue?"
//
// MODEL is a GGUF file or a Hugging Face folder, HEADS a folder of draft heads.

#include <espalier/espalier.h>

#include <csignal>
#include <iostream>

namespace {

volatile std::sig_atomic_t interrupted = 0;

int answer(const std::string& model, const std::string& heads, const std::string& question) {
  const espalier::Engine engine = espalier::Engine::open(
      model,
      {.head_folders = {heads}, .on_remark = [](std::string_view line) { std::cerr << "one_answer: " << line << "\n"; }});
  espalier::Conversation conversation = engine.converse();
  const espalier::Reply reply = conversation.ask(
      question, {.on_text = [](std::string_view text) { std::cout << text << std::flush; },
                 .cancelled = [] { return interrupted != 0; }});  // Ctrl-C ends the answer, not the program
  std::cout << "\n";
  const espalier::ReplyStatistics& statistics = reply.statistics;
  std::cerr << reply.tokens.size() << " tokens in " << statistics.rounds << " rounds, " << statistics.accepted_tokens
            << " of them drafted by " << statistics.drafters << "; ended by " << name(reply.end) << "\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: one_answer MODEL HEADS QUESTION\n";
    return 2;
  }
  std::signal(SIGINT, [](int) { interrupted = 1; });
  try {
    return answer(argv[1], argv[2], argv[3]);
  } catch (const espalier::InputError& error) {  // a file or an option is wrong
    std::cerr << "one_answer: " << error.what() << "\n";
    return 2;
  } catch (const std::exception& error) {  // the machine failed, or a program has a mistake
    std::cerr << "one_answer: " << error.what() << "\n";
    return 1;
  }
}
