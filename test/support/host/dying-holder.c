/* With the file `die-at` in its folder, the holder dies right after that many writes of a whole chunk into a ring. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

/* No header and no file of exits is as long. */
#define LEAST_BYTES 5000

ssize_t __real_pwrite(int fd, const void *bytes, size_t length, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t length, off_t offset);

ssize_t __wrap_pwrite(int fd, const void *bytes, size_t length, off_t offset) {
  static int left;
  ssize_t written = __real_pwrite(fd, bytes, length, offset);
  if (length < LEAST_BYTES) return written;
  char text[16] = {0};
  int file = open("die-at", O_RDONLY | O_CLOEXEC);
  if (left == 0 && file >= 0 && read(file, text, sizeof text - 1) > 0) left = atoi(text);
  if (file >= 0) close(file);
  if (left > 0 && --left == 0) _exit(0);
  return written;
}
