#pragma once

/* Opens `path` with O_PATH. Refuses symbolic links in every part of it. Returns the descriptor, or -1 with errno set. */
int open_without_links(const char *path);
