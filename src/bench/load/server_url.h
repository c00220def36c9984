// Where an OpenAI server is: http://HOST[:PORT][/PREFIX]. A value.
#pragma once

#include <string>
#include <string_view>

namespace espalier {

struct ServerUrl {
  std::string host = {};  // a name or an address, without brackets
  int port = 80;
  std::string prefix = {};  // before /v1: "" or "/models/a"

  std::string text() const;       // http://[::1]:8080/models/a
  std::string authority() const;  // [::1]:8080
};

// A slash at the end, or /v1, is taken for what is meant. Throws InputError, `flag` named, on anything else.
ServerUrl parse_server_url(std::string_view text, std::string_view flag);

}  // namespace espalier
