#define _GNU_SOURCE
#include "message.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#define PREFIX "vminit: "

void say(const char *format, ...) {
  char line[1024] = PREFIX;
  const size_t room = sizeof line - sizeof PREFIX; /* leaves a byte for the newline */
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line + sizeof PREFIX - 1, room, format, arguments);
  va_end(arguments);
  if (length < 0) return;
  size_t end = sizeof PREFIX - 1 + ((size_t)length < room ? (size_t)length : room - 1);
  line[end++] = '\n';

  /* A stderr that is a full pipe must not stop the reaping. /dev/kmsg answers POLLERR and can be written to. */
  struct pollfd writable = {.fd = STDERR_FILENO, .events = POLLOUT};
  if (poll(&writable, 1, 0) == 0) return;
  ssize_t written = write(STDERR_FILENO, line, end);
  (void)written; /* There is nowhere else to complain. */
}
