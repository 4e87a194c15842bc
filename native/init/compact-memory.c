#define _GNU_SOURCE
#include "compact-memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define COMPACT_FILE "/proc/sys/vm/compact_memory"

int compact_memory(void) {
  int fd = open(COMPACT_FILE, O_WRONLY | O_CLOEXEC);
  if (fd >= 0 && write(fd, "1", 1) == 1) return 0;
  fprintf(stderr, COMPACT_FILE ": %s\n", strerror(errno));
  return 1;
}
