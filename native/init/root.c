#define _GNU_SOURCE
#include "root.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "early-mounts.h"
#include "initramfs.h"
#include "message.h"
#include "power-off.h"
#include "root-device.h"
#include "root-mount.h"

#define NEW_ROOT "/newroot"
#define DEVICE_WAIT_MS 30000

bool root_is_initramfs(void) {
  struct statfs status;
  if (statfs("/", &status) != 0) boot_failed("statfs /: %s", strerror(errno));
  return status.f_type == RAMFS_MAGIC || status.f_type == TMPFS_MAGIC;
}

/* Makes the directory the process is in its root. */
static void enter_current_directory(void) {
  if (chroot(".") != 0 || chdir("/") != 0) boot_failed("chroot: %s", strerror(errno));
}

static void wait_for_root_device(const char *device) {
  if (strncmp(device, "/dev/", 5) != 0) {
    boot_failed("root=%s: only a device such as root=/dev/vda is understood", device);
  }
  if (wait_for_device(device, DEVICE_WAIT_MS)) return;
  if (errno == ETIMEDOUT) boot_failed("root=%s: no such device after %d s", device, DEVICE_WAIT_MS / 1000);
  boot_failed("root=%s: %s", device, strerror(errno));
}

void switch_to_root_device(const struct root_options *options) {
  wait_for_root_device(options->device);
  if (mkdir(NEW_ROOT, 0755) != 0 && errno != EEXIST) boot_failed("mkdir %s: %s", NEW_ROOT, strerror(errno));
  mount_root(options, NEW_ROOT);
  unmount_early();
  int initramfs = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (chdir(NEW_ROOT) != 0 || mount(".", "/", NULL, MS_MOVE, NULL) != 0) {
    boot_failed("switch to root %s: %s", options->device, strerror(errno));
  }
  enter_current_directory();
  if (initramfs >= 0) delete_initramfs(initramfs);
}

void leave_bare_initramfs(void) {
  unmount_early();
  /* `/` still means the lower mount after the bind; `..` is the step that climbs onto the one on top. */
  if (mount("/", "/", NULL, MS_BIND, NULL) != 0 || chdir("/..") != 0) {
    boot_failed("bind / on itself: %s", strerror(errno));
  }
  enter_current_directory();
}
