#define _GNU_SOURCE
#include "boot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/reboot.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../log.h"
#include "../power-off.h"
#include "console.h"
#include "early-mounts.h"
#include "kernel-command-line.h"
#include "root.h"

/* finit_module(2) returns ENOENT for a missing symbol, not for a missing file. */
static const char *load_failure(int error) {
  return error == ENOENT ? "it needs a symbol of a module that is not loaded" : strerror(error);
}

/* Only logs a failure, because the module may not be needed; a missing root device is reported later. */
static void load_module(const char *name) {
  char path[512];
  snprintf(path, sizeof path, "/modules/%s", name);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    log_line("module %s: %s", path, strerror(errno));
    return;
  }
  if (syscall(SYS_finit_module, fd, "", 0) != 0 && errno != EEXIST) {
    log_line("module %s: %s", path, load_failure(errno));
  }
  close(fd);
}

/* Loads the modules of `/modules/order`, one file name a line, in that order. The file may be absent. */
static void load_modules(void) {
  FILE *order = fopen("/modules/order", "re");
  if (order == NULL) {
    if (errno != ENOENT) log_line("/modules/order: %s", strerror(errno));
    return;
  }
  char name[256];
  while (fgets(name, sizeof name, order) != NULL) {
    name[strcspn(name, "\n")] = '\0';
    if (name[0] != '\0') load_module(name);
  }
  fclose(order);
}

/* The kernel's maximum: the later a pid is reused, the less likely processes are mixed up. */
#define HIGHEST_PID_MAX "4194304"

static void raise_pid_max(void) {
  int fd = open("/proc/sys/kernel/pid_max", O_WRONLY | O_CLOEXEC);
  if (fd < 0 || write(fd, HIGHEST_PID_MAX, sizeof HIGHEST_PID_MAX - 1) < 0) {
    log_line("kernel.pid_max: %s", strerror(errno));
  }
  if (fd >= 0) close(fd);
}

static void enter_root(const struct boot_options *options, const char *agent_directory) {
  load_modules();
  open_console(options->virtio_console); /* a module may have added it */
  const bool holds_agent = access(agent_directory, F_OK) == 0;
  if (options->device[0] != '\0' && !holds_agent) {
    switch_to_root_device(options);
  } else {
    /* Some hosts always pass root=. */
    if (options->device[0] != '\0') log_line("root=%s: not used, the initrd is the root", options->device);
    bind_initramfs();
  }
  mount_early();
  open_console(options->virtio_console); /* the old one belongs to the unmounted /dev */
}

void boot(const char *agent_directory) {
  struct boot_options options;
  mount_early();
  if (!read_boot_options(&options)) boot_failed("/proc/cmdline: %s", strerror(errno));
  open_console(options.virtio_console);
  if (root_is_initramfs()) enter_root(&options, agent_directory);
  raise_pid_max();
  reboot(RB_DISABLE_CAD); /* Ctrl-Alt-Del sends SIGINT to PID 1 instead of a reset */
}
