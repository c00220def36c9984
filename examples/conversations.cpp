// Several conversations on one model, each with settings of its own, turn by turn.
//
//   conversations MODEL
//
// Both hear the same questions. The first is always given the most probable words, the second draws with a seed: run it
// again, and every word is the same.

#include <espalier/espalier.h>

#include <iostream>

namespace {

struct Speaker {
  std::string name;
  espalier::Conversation conversation;
  espalier::AnswerOptions options;
};

void ask(Speaker& speaker, const std::string& question) {
  const espalier::Reply reply = speaker.conversation.ask(question, speaker.options);
  std::cout << speaker.name << ": " << reply.text << "\n";
  if (!reply.logprobs.empty()) {
    const espalier::TokenProbabilities& first = reply.logprobs.front();
    std::cout << "  its first token had a log-probability of " << first.chosen.logprob << "; the most probable was \""
              << first.top.front().text << "\"\n";
  }
}

int converse(const std::string& model) {
  const espalier::Engine engine = espalier::Engine::open(model, {.context = 512});
  std::vector<Speaker> speakers;
  speakers.push_back({"plain", engine.converse({.drafts = {.draft = "none"}}), {.max_tokens = 48}});
  speakers.push_back({"lively",
                      engine.converse({.system = "You answer in one cheerful sentence.",
                                       .drafts = {.draft = "ngram", .tree = "chain", .nodes = 6}}),
                      {.temperature = 0.8f, .top_p = 0.95f, .seed = 7, .max_tokens = 48, .logprobs = 1}});
  for (const char* question : {"Name a fruit tree.", "And another one?"}) {
    std::cout << "> " << question << "\n";
    for (Speaker& speaker : speakers) ask(speaker, question);
  }
  for (const Speaker& speaker : speakers)
    std::cout << speaker.name << " remembers " << speaker.conversation.history().size() << " messages\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: conversations MODEL\n";
    return 2;
  }
  try {
    return converse(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << "conversations: " << error.what() << "\n";
    return 1;
  }
}
