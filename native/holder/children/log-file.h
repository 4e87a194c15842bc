#pragma once

#include "../state.h"

/* NAME.log of a child. It and NAME.log.1 together have at most the last 2 × LOG_BYTES_MAX of its output. */

/* Opens the file. Returns the child's end of the pipe to it, or -1 with errno set. */
int log_open(struct child *child);

void log_watch(struct holder *holder, struct child *child);

void log_read(struct holder *holder, struct child *child);

void log_close(struct holder *holder, struct child *child);
