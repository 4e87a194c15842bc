#define _GNU_SOURCE
#include "boot.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/reboot.h>
#include <unistd.h>

#include "early-mounts.h"
#include "kernel-command-line.h"
#include "kernel-modules.h"
#include "message.h"
#include "power-off.h"
#include "root.h"

/* The kernel's limit: the later a pid is used again, the less can be mistaken for another process. */
#define HIGHEST_PID_MAX "4194304"

static void raise_pid_max(void) {
  int fd = open("/proc/sys/kernel/pid_max", O_WRONLY | O_CLOEXEC);
  if (fd < 0 || write(fd, HIGHEST_PID_MAX, sizeof HIGHEST_PID_MAX - 1) < 0) {
    say("kernel.pid_max: %s", strerror(errno));
  }
  if (fd >= 0) close(fd);
}

/* From the initramfs to the root that the agent runs on. */
static void settle_on_root(void) {
  struct root_options options;
  if (!read_root_options(&options)) boot_failed("/proc/cmdline: %s", strerror(errno));
  load_modules();
  if (options.device[0] != '\0') {
    switch_to_root_device(&options);
  } else {
    leave_bare_initramfs();
  }
  mount_early();
  open_console(); /* The one that is open belongs to a /dev that is no longer there. */
}

void boot(void) {
  mount_early();
  open_console();
  if (root_is_initramfs()) settle_on_root();
  raise_pid_max();
  reboot(RB_DISABLE_CAD); /* Ctrl-Alt-Del sends SIGINT to PID 1 instead of resetting the machine. */
}
