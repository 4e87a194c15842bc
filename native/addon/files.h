#pragma once

/* Opens the path with O_PATH by openat2(2), without following a symbolic link in it. Returns a descriptor or -errno. */
int open_without_links(const char *path);
