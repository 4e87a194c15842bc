#define _GNU_SOURCE
#include "diagnosis.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../log.h"

static void log_file(pid_t pid, const char *name) {
  char path[64], text[4096];
  snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  if (length < 0) log_line("%s: %s", path, strerror(errno));
  if (fd >= 0) close(fd);
  /* `stack` is empty unless the process waits in the kernel. */
  if (length == 0) log_line("%s: empty", path);
  text[length < 0 ? 0 : length] = '\0';
  char *rest = text;
  for (char *line = strsep(&rest, "\n"); line != NULL; line = strsep(&rest, "\n"))
    if (line[0] != '\0') log_line("%s: %s", path, line);
}

void log_kernel_stack(pid_t pid) {
  log_file(pid, "stat");
  log_file(pid, "wchan");
  log_file(pid, "stack");
}
