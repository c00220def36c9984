#include "terminal/line_editor.h"

#include <histedit.h>
#include <locale.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>

#include "base/error.h"
#include "text/utf8.h"

namespace espalier {
namespace {

constexpr int kHistorySize = 1000;
constexpr std::wstring_view kPasteEnd = L"\033[201~";
constexpr std::string_view kMarkPastes = "\033[?2004h", kLeavePastes = "\033[?2004l";

// libedit asks the C library which characters are wide, and how to spell them. It is told UTF-8, whatever the user's
// locale says, because that is what the program speaks; only this thread and only while it edits.
class Utf8Locale {
 public:
  Utf8Locale() : utf8_(newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)) {
    if (utf8_ != nullptr) previous_ = uselocale(utf8_);
  }
  ~Utf8Locale() {
    if (utf8_ == nullptr) return;
    uselocale(previous_);
    freelocale(utf8_);
  }
  Utf8Locale(const Utf8Locale&) = delete;
  Utf8Locale& operator=(const Utf8Locale&) = delete;

 private:
  locale_t utf8_;
  locale_t previous_ = nullptr;
};

std::wstring wide(std::string_view text) {
  std::wstring result;
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    result += step.kind == Utf8Step::Kind::character ? static_cast<wchar_t>(step.code_point) : L'\uFFFD';
    text.remove_prefix(step.size);
  }
  return result;
}

std::string narrow(std::wstring_view text) {
  std::string result;
  for (const wchar_t character : text) append_utf8(result, static_cast<char32_t>(character));
  return result;
}

}  // namespace

struct LineEditor::State {
  State(const ChatTerminal& given, InterruptSource& source);
  ~State();

  void bind_keys();
  void bind_paste();
  bool fill();  // false: interrupted, or the input has ended
  int read_key(wchar_t& key);
  unsigned char paste();
  void follow_window();

  // What libedit calls.
  static State& of(EditLine* editor);
  static int on_read(EditLine* editor, wchar_t* key) { return of(editor).read_key(*key); }
  static unsigned char on_paste(EditLine* editor, wint_t) { return of(editor).paste(); }
  static wchar_t* on_prompt(EditLine* editor) { return of(editor).prompt.data(); }

  const ChatTerminal* terminal;
  InterruptSource* interrupt;
  FILE* silence;  // libedit's remarks about terminals
  EditLine* editor = nullptr;
  HistoryW* history = nullptr;
  std::wstring prompt;
  std::string bytes;           // read, not yet a key
  std::exception_ptr failure;  // must not fly through C code
  winsize window = {};
};

LineEditor::State& LineEditor::State::of(EditLine* editor) {
  void* state = nullptr;
  el_wget(editor, EL_CLIENTDATA, &state);
  return *static_cast<State*>(state);
}

LineEditor::State::State(const ChatTerminal& given, InterruptSource& source)
    : terminal(&given), interrupt(&source), silence(std::fopen("/dev/null", "w")) {
  const Utf8Locale utf8;
  editor = el_init("espalier", given.in, given.out, silence == nullptr ? given.out : silence);
  history = history_winit();
  if (editor == nullptr || history == nullptr) device_error("libedit: out of memory");
  HistEventW event;
  history_w(history, &event, H_SETSIZE, kHistorySize);
  history_w(history, &event, H_SETUNIQUE, 1);
  el_wset(editor, EL_CLIENTDATA, static_cast<void*>(this));
  el_wset(editor, EL_EDITOR, L"emacs");
  el_wset(editor, EL_HIST, history_w, history);
  el_wset(editor, EL_PROMPT, &State::on_prompt);
  el_wset(editor, EL_GETCFN, &State::on_read);
  bind_keys();
  el_source(editor, nullptr);  // ~/.editrc: what the user likes better
  bind_paste();                // "bind -v" in it has forgotten all of ours
}

LineEditor::State::~State() {
  if (editor != nullptr) el_end(editor);
  if (history != nullptr) history_wend(history);
  if (silence != nullptr) std::fclose(silence);
}

// What terminals send for keys that libedit has no names for.
void LineEditor::State::bind_keys() {
  const wchar_t* keys[][2] = {
      {L"^I", L"ed-insert"},          {L"\\e[3~", L"ed-delete-next-char"}, {L"\\e[1~", L"ed-move-to-beg"},
      {L"\\e[4~", L"ed-move-to-end"}, {L"\\e[7~", L"ed-move-to-beg"},      {L"\\e[8~", L"ed-move-to-end"},
      {L"\\e[H", L"ed-move-to-beg"},  {L"\\e[F", L"ed-move-to-end"},       {L"\\e[1;5D", L"ed-prev-word"},
      {L"\\e[1;5C", L"em-next-word"}, {L"\\e[1;3D", L"ed-prev-word"},      {L"\\e[1;3C", L"em-next-word"},
      {L"^R", L"em-inc-search-prev"}, {L"^W", L"ed-delete-prev-word"}};
  for (const auto& [key, command] : keys) el_wset(editor, EL_BIND, key, command, nullptr);
}

// Also where vi's commands are typed (-a).
void LineEditor::State::bind_paste() {
  el_wset(editor, EL_ADDFN, L"espalier-paste", L"Take a pasted text", &State::on_paste);
  el_wset(editor, EL_BIND, L"\\e[200~", L"espalier-paste", nullptr);
  el_wset(editor, EL_BIND, L"-a", L"\\e[200~", L"espalier-paste", nullptr);
}

// Without a handler for the signal the size is looked at before every wait.
void LineEditor::State::follow_window() {
  winsize now{};
  if (ioctl(fileno(terminal->out), TIOCGWINSZ, &now) != 0) return;
  if (now.ws_col != window.ws_col || now.ws_row != window.ws_row) el_resize(editor);
  window = now;
}

bool LineEditor::State::fill() {
  follow_window();
  const int input = fileno(terminal->in);
  if (!interrupt->wait_for_input(input)) return false;
  char part[4096];
  ssize_t count = 0;
  while ((count = read(input, part, sizeof part)) < 0 && errno == EINTR) {
  }
  // A terminal that is gone answers with an error: the end of the input.
  if (count > 0) bytes.append(part, static_cast<std::size_t>(count));
  return count > 0;
}

// One character, as libedit's hook wants it: 1, or 0 where there is none.
int LineEditor::State::read_key(wchar_t& key) try {
  while (bytes.empty() || utf8_step(bytes).kind == Utf8Step::Kind::unfinished)
    if (!fill()) return 0;
  const Utf8Step step = utf8_step(bytes);
  key = step.kind == Utf8Step::Kind::character ? static_cast<wchar_t>(step.code_point) : L'\uFFFD';
  bytes.erase(0, step.size);
  return 1;
} catch (...) {
  failure = std::current_exception();
  return 0;
}

unsigned char LineEditor::State::paste() {
  std::wstring text;
  while (!text.ends_with(kPasteEnd)) {
    wchar_t key = 0;
    if (el_wgetc(editor, &key) != 1) return CC_ERROR;
    text += key;
  }
  text.resize(text.size() - kPasteEnd.size());
  return el_winsertstr(editor, tidy_paste(text).c_str()) == 0 ? CC_REFRESH : CC_ERROR;
}

LineEditor::LineEditor(const ChatTerminal& terminal, InterruptSource& interrupt)
    : state_(std::make_unique<State>(terminal, interrupt)) {}
LineEditor::~LineEditor() = default;

std::optional<std::string> LineEditor::next(std::string_view prompt) {
  const Utf8Locale utf8;
  state_->prompt = wide(prompt);
  state_->terminal->print(kMarkPastes);
  int count = 0;
  const wchar_t* typed = el_wgets(state_->editor, &count);
  state_->terminal->print(kLeavePastes);
  if (state_->failure) std::rethrow_exception(std::exchange(state_->failure, nullptr));
  if (typed == nullptr || count <= 0) return std::nullopt;
  std::wstring line(typed, static_cast<std::size_t>(count));
  if (line.ends_with(L'\n')) line.pop_back();
  HistEventW event;
  if (!line.empty()) history_w(state_->history, &event, H_ENTER, line.c_str());
  return narrow(line);
}

std::wstring tidy_paste(std::wstring_view pasted) {
  std::wstring text;
  for (std::size_t i = 0; i < pasted.size(); ++i) {
    const wchar_t c = pasted[i];
    if (c == L'\r') {
      text += L'\n';
      if (i + 1 < pasted.size() && pasted[i + 1] == L'\n') ++i;
    } else if (c == L'\n' || c == L'\t' || (c >= L' ' && c != 0x7f)) {
      text += c;
    }
  }
  if (text.ends_with(L'\n')) text.pop_back();
  return text;
}

}  // namespace espalier
