#pragma once

/* Opens `path` with O_PATH. Refuses symbolic links in every part of it. Returns the descriptor or -errno. */
int open_without_links(const char *path);
