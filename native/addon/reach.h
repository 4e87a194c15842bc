#pragma once

/* openat2(2) of what is at a path and no symbolic link on the way: a descriptor of the place alone (O_PATH), or -errno. */
int reach(const char *path);
