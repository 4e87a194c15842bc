#pragma once

/* Returns a listening unix socket with mode 0600, or -1 with errno set. */
int listen_on(const char *path);
