/* Makes fsync(2) and fdatasync(2) take three seconds longer while the file $SLOW_SYNC exists, as a slow disk does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static void delay(void) {
  const char *slow = getenv("SLOW_SYNC");
  if (slow != NULL && access(slow, F_OK) == 0) sleep(3);
}

int fsync(int fd) {
  delay();
  return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}

int fdatasync(int fd) {
  delay();
  return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}
