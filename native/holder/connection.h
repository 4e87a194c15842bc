#pragma once

#include "state.h"

void connections_accept(struct holder *holder);

/* Greets, and takes commands from now on. */
void connection_open(struct holder *holder, int fd);

/* Waits for what the connection is to do next. Closes one that cannot be waited for. */
void connection_wait(struct holder *holder, struct connection *connection);

/* Sends a line; `format` has no newline. Closes a connection that does not read its answers. */
__attribute__((format(printf, 3, 4))) void answer(struct holder *holder, struct connection *connection,
                                                  const char *format, ...);

/* Sends `error CODE TEXT`. */
__attribute__((format(printf, 4, 5))) void refuse(struct holder *holder, struct connection *connection,
                                                  const char *code, const char *format, ...);

/* The same for errno. */
void refuse_errno(struct holder *holder, struct connection *connection, const char *what);

void connection_close(struct holder *holder, struct connection *connection);

/* At the end of a round: makes the entries of closed connections usable again. */
void connections_clean(struct holder *holder);
