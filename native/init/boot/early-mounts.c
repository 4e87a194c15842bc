#define _GNU_SOURCE
#include "early-mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../log.h"
#include "../power-off.h"

static const struct early_mount {
  const char *type;
  const char *target;
  unsigned long flags;
  bool required;
} early_mounts[] = {
    {"proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, true},
    {"sysfs", "/sys", MS_NOSUID | MS_NODEV | MS_NOEXEC, true},
    /* A root with its own device nodes needs no devtmpfs. */
    {"devtmpfs", "/dev", MS_NOSUID, false},
};

#define EARLY_MOUNTS (sizeof early_mounts / sizeof early_mounts[0])

void mount_early(void) {
  for (const struct early_mount *each = early_mounts; each < early_mounts + EARLY_MOUNTS; each++) {
    /* An initramfs may lack the folder. Where it cannot be created, the mount below reports that it is missing. */
    mkdir(each->target, 0755);
    if (mount(each->type, each->target, each->type, each->flags, NULL) == 0) continue;
    if (errno == EBUSY) continue; /* the kernel or an earlier init has mounted the same file system there */
    if (each->required) boot_failed("mount %s: %s", each->target, strerror(errno));
    log_line("mount %s: %s", each->target, strerror(errno));
  }
}

void unmount_early(void) {
  for (size_t i = EARLY_MOUNTS; i-- > 0;) umount2(early_mounts[i].target, MNT_DETACH);
}

/* Opens `path` on a descriptor above stderr: 0 to 2 may be closed, and will be replaced. */
static int open_above_stderr(const char *path, int flags) {
  int fd = open(path, flags);
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  int moved = fcntl(fd, F_DUPFD, STDERR_FILENO + 1);
  close(fd);
  return moved;
}

void open_console(void) {
  /* O_NOCTTY: the console becomes the controlling terminal of the agent, not of vminit. */
  int console = open_above_stderr("/dev/console", O_RDWR | O_NOCTTY);
  int input = console >= 0 ? console : open_above_stderr("/dev/null", O_RDWR);
  int log = console >= 0 ? console : open_above_stderr("/dev/kmsg", O_WRONLY);
  dup2(input, STDIN_FILENO);
  dup2(input, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  close(input);
  if (log != input) close(log);
}
