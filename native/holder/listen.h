#pragma once

#include <sys/types.h>

/* Returns a listening unix socket whose file has `mode`, or -1 with errno set. */
int listen_on(const char *path, mode_t mode);

/* Returns a connection to a unix socket, or -1 with errno set. */
int connect_to(const char *path);
