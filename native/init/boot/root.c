#define _GNU_SOURCE
#include "root.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/netlink.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "../clock.h"
#include "../power-off.h"
#include "early-mounts.h"
#include "initramfs.h"

#define NEW_ROOT "/newroot"
#define KERNEL_UEVENTS 1
#define TYPES_BYTES 1024

bool root_is_initramfs(void) {
  struct statfs status;
  if (statfs("/", &status) != 0) boot_failed("statfs /: %s", strerror(errno));
  return status.f_type == RAMFS_MAGIC || status.f_type == TMPFS_MAGIC;
}

static int open_uevents(void) {
  int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT);
  struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = KERNEL_UEVENTS};
  if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
  int error = errno;
  close(fd);
  errno = error;
  return -1;
}

/* open(2) checks the device: its node may exist before the device answers (ENXIO until then). */
static bool is_block_device(const char *path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat status;
  bool block = fstat(fd, &status) == 0 && S_ISBLK(status.st_mode);
  close(fd);
  if (!block) errno = ENOTBLK;
  return block;
}

/* Any event, even a dropped one (ENOBUFS), causes another look. */
static void discard_events(int events) {
  char event[8192];
  while (recv(events, event, sizeof event, 0) >= 0 || errno == EINTR || errno == ENOBUFS) continue;
}

/* Waits until the device opens. On failure errno is ETIMEDOUT, or ENOTBLK for something else than a block device. */
static bool wait_for_device(const char *path, int limit_ms) {
  int events = open_uevents(); /* before the first look, so that no event is missed */
  if (events < 0) return false;
  const int64_t deadline = monotonic_ms() + limit_ms;
  bool ready;
  int error;
  while (!(ready = is_block_device(path)) && (error = errno) != ENOTBLK) {
    int64_t left = deadline - monotonic_ms();
    struct pollfd readable = {.fd = events, .events = POLLIN};
    error = ETIMEDOUT;
    if (left <= 0 || poll(&readable, 1, (int)left) == 0) break;
    discard_events(events);
  }
  close(events);
  if (!ready) errno = error;
  return ready;
}

static void list_block_devices(char *names, size_t size) {
  names[0] = '\0';
  DIR *devices = opendir("/sys/class/block");
  if (devices == NULL) return;
  size_t used = 0;
  for (struct dirent *entry; (entry = readdir(devices)) != NULL;) {
    if (entry->d_name[0] == '.' || used + strlen(entry->d_name) + 2 > size) continue;
    used += (size_t)snprintf(names + used, size - used, " %s", entry->d_name);
  }
  closedir(devices);
}

static void wait_for_root_device(const struct boot_options *options) {
  const char *device = options->device;
  if (strncmp(device, "/dev/", 5) != 0) {
    boot_failed("root=%s: only a device such as root=/dev/vda is understood", device);
  }
  if (wait_for_device(device, options->wait_seconds * 1000)) return;
  if (errno != ETIMEDOUT) boot_failed("root=%s: %s", device, strerror(errno));
  char names[128];
  list_block_devices(names, sizeof names);
  boot_failed("root=%s: no such device after %d s, want one of:%s", device, options->wait_seconds,
              names[0] != '\0' ? names : " none");
}

static void list_known_types(char *types) {
  FILE *known = fopen("/proc/filesystems", "re");
  if (known == NULL) boot_failed("/proc/filesystems: %s", strerror(errno));
  char line[128], name[64];
  size_t used = 0;
  types[0] = '\0';
  while (fgets(line, sizeof line, known) != NULL) {
    /* `nodev<TAB>proc` or `<TAB>ext4` */
    if (line[0] != '\t' || sscanf(line, "%63s", name) != 1 || used + strlen(name) + 2 > TYPES_BYTES) continue;
    used += (size_t)sprintf(types + used, "%s,", name);
  }
  fclose(known);
}

/* Tries each type of rootfstype=, or each known one. Powers off with the reason of the last attempt. */
static void mount_root(const struct boot_options *options, const char *target) {
  char types[TYPES_BYTES];
  if (options->types[0] != '\0') {
    snprintf(types, sizeof types, "%s", options->types);
  } else {
    list_known_types(types);
  }
  const unsigned long flags = options->writable ? 0 : MS_RDONLY;
  const char *tried = "any type";
  int error = ENODEV;
  for (char *type = strtok(types, ","); type != NULL; type = strtok(NULL, ",")) {
    if (mount(options->device, target, type, flags, options->flags) == 0) return;
    error = errno;
    tried = type;
  }
  /* mount(2) returns ENODEV for an unknown type, never for the device. */
  const char *reason = error == ENODEV ? "the kernel does not know this file system" : strerror(error);
  boot_failed("mount %s as %s: %s", options->device, tried, reason);
}

static void enter_current_directory(void) {
  if (chroot(".") != 0 || chdir("/") != 0) boot_failed("chroot: %s", strerror(errno));
}

void switch_to_root_device(const struct boot_options *options) {
  wait_for_root_device(options);
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

void bind_initramfs(void) {
  unmount_early();
  /* After the bind, `/` still resolves to the lower mount, and `/..` to the upper one. */
  if (mount("/", "/", NULL, MS_BIND, NULL) != 0 || chdir("/..") != 0) {
    boot_failed("bind / on itself: %s", strerror(errno));
  }
  enter_current_directory();
}
