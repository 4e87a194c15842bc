#define _GNU_SOURCE
#include "log.h"

#include <linux/major.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define PREFIX "vminit: "

/* /dev/kmsg always takes a line, but poll(2) never reports it as writable. */
static bool is_kernel_log(int fd) {
  struct stat status;
  return fstat(fd, &status) == 0 && S_ISCHR(status.st_mode) && major(status.st_rdev) == MEM_MAJOR;
}

/* A full pipe or a stopped terminal must not block vminit. */
static bool stderr_is_ready(void) {
  struct pollfd writable = {.fd = STDERR_FILENO, .events = POLLOUT};
  return poll(&writable, 1, 0) != 0 || is_kernel_log(STDERR_FILENO);
}

void log_line(const char *format, ...) {
  if (!stderr_is_ready()) return;
  char line[1024] = PREFIX;
  const size_t room = sizeof line - sizeof PREFIX; /* leaves a byte for the newline */
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line + sizeof PREFIX - 1, room, format, arguments);
  va_end(arguments);
  if (length < 0) return;
  size_t end = sizeof PREFIX - 1 + ((size_t)length < room ? (size_t)length : room - 1);
  line[end++] = '\n';
  ssize_t written = write(STDERR_FILENO, line, end);
  (void)written;
}
