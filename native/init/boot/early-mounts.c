#define _GNU_SOURCE
#include "early-mounts.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

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
    /* An initramfs may lack the folder. If mkdir(2) fails, mount(2) reports it. */
    mkdir(each->target, 0755);
    if (mount(each->type, each->target, each->type, each->flags, NULL) == 0) continue;
    if (errno == EBUSY) continue; /* the kernel or an earlier init has mounted it */
    if (each->required) boot_failed("mount %s: %s", each->target, strerror(errno));
    log_line("mount %s: %s", each->target, strerror(errno));
  }
}

void unmount_early(void) {
  for (size_t i = EARLY_MOUNTS; i-- > 0;) umount2(early_mounts[i].target, MNT_DETACH);
}
