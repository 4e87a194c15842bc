#define _GNU_SOURCE
#include "kernel-modules.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "message.h"

/* Why finit_module failed: its ENOENT is about the module's content, not about the file. */
static const char *load_failure(int error) {
  return error == ENOENT ? "it needs a symbol of a module that is not loaded" : strerror(error);
}

/* A module that does not load may still not be needed here: the wait for the root device has the last word. */
static void load_module(const char *name) {
  char path[512];
  snprintf(path, sizeof path, "/modules/%s", name);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    say("module %s: %s", path, strerror(errno));
    return;
  }
  if (syscall(SYS_finit_module, fd, "", 0) != 0 && errno != EEXIST) {
    say("module %s: %s", path, load_failure(errno));
  }
  close(fd);
}

void load_modules(void) {
  FILE *order = fopen("/modules/order", "re");
  if (order == NULL) {
    if (errno != ENOENT) say("/modules/order: %s", strerror(errno));
    return;
  }
  char name[256];
  while (fgets(name, sizeof name, order) != NULL) {
    name[strcspn(name, "\n")] = '\0';
    if (name[0] != '\0') load_module(name);
  }
  fclose(order);
}
