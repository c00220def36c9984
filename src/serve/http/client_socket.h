// What is asked of a connected or listening socket beyond reading and writing. Plain POSIX.
#pragma once

#include "serve/http/http_limits.h"

namespace espalier {

// Small events leave at once, and a peer that has vanished without a word is noticed, whether we write to it or not.
void set_client_options(int socket, const HttpLimits& limits);

enum class ClientState { silent, talking, gone };

// What the client has done while we work for it. One that has closed the connection, or its sending side alone, is
// gone, also where bytes that nobody has read yet lie before that end.
ClientState look_at_client(int socket);

// Bytes that were written and that the client's machine has not acknowledged. They shrink while it reads, also in the
// long stretches where the system takes no more from us.
int unacknowledged_bytes(int socket);

// The next connection, not inherited by other programs; -1: none, with errno.
int accept_client(int listener);
// accept_client() failed for reasons of one connection, and the next may be fine. Otherwise it would fail again at
// once.
bool concerns_one_client(int error);

}  // namespace espalier
