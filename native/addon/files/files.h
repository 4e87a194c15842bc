#pragma once

/* Opens `path` with O_PATH and refuses symbolic links in every part of it. Returns -1 with errno set. */
int open_without_links(const char *path);
