// A stream of events as a client reads it: checked event by event, and joined to the object that would have come
// without a stream. For tests only.
#pragma once

#include <string>
#include <string_view>

namespace espalier {

struct JoinedStream {
  std::string object = {};     // JSON, as response_json() writes it; empty members of choices are left out
  std::string complaint = {};  // the first thing that no client should see; empty: none
  int events = 0;              // without [DONE]
};

JoinedStream joined_stream(std::string_view events);

}  // namespace espalier
