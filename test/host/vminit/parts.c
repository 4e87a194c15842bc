/* Calls one function of vminit and prints what it answers, for tests. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "boot/initramfs.h"
#include "boot/kernel-command-line.h"
#include "supervision/restart-policy.h"

/* parts root-options LINE */
static int print_root_options(char *line) {
  struct root_options options;
  parse_root_options(line, &options);
  printf("%s|%s|%s|%s\n", options.device, options.types, options.flags, options.writable ? "rw" : "ro");
  return 0;
}

/* parts restart-delays MILLISECOND…: the delay after a death at each of these times */
static int print_restart_delays(char *times[]) {
  struct restart_policy policy = {.count = 0};
  for (; *times != NULL; times++) printf("%lld ", (long long)restart_delay_ms(&policy, atoll(*times)));
  return 0;
}

/* parts delete-initramfs DIRECTORY */
static int delete_tree(const char *path) {
  int fd = open(path, O_RDONLY | O_DIRECTORY);
  if (fd < 0) return 1;
  delete_initramfs(fd);
  return 0;
}

int main(int argc, char *argv[]) {
  if (argc < 3) return 2;
  if (strcmp(argv[1], "root-options") == 0) return print_root_options(argv[2]);
  if (strcmp(argv[1], "restart-delays") == 0) return print_restart_delays(argv + 2);
  if (strcmp(argv[1], "delete-initramfs") == 0) return delete_tree(argv[2]);
  return 2;
}
