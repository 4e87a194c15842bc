#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../functions.h"
#include "../napi/call.h"
#include "files.h"

static int open_target(const char *target, bool refuse_links) {
  return refuse_links ? open_without_links(target) : open(target, O_PATH | O_CLOEXEC);
}

static int64_t mount_file_system(struct call *call) {
  const union argument *given = call->given;
  const char *source = given[0].string, *target = given[1].string, *type = given[2].string, *data = given[4].string;
  if (!given[5].integer) return mount(source, target, type, given[3].integer, data);
  int fd = open_target(target, true);
  if (fd == -1) return -1;
  char opened[64];
  snprintf(opened, sizeof opened, "/proc/self/fd/%d", fd);
  return closed_after(fd, mount(source, opened, type, given[3].integer, data));
}

static int set_string(int context, const char *key, const char *value) {
  return (int)syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, key, value, 0);
}

/* `setting` is "key=value", or "key". */
static int set(int context, char *setting) {
  char *equals = strchr(setting, '=');
  if (equals == NULL) return (int)syscall(SYS_fsconfig, context, FSCONFIG_SET_FLAG, setting, NULL, 0);
  *equals = '\0';
  return set_string(context, setting, equals + 1);
}

static int make_mount(int context, const char *source, char **settings, int64_t attributes) {
  if (set_string(context, "source", source) != 0) return -1;
  for (; *settings != NULL; settings++)
    if (set(context, *settings) != 0) return -1;
  if (syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) != 0) return -1;
  return (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, attributes);
}

/* The calls have no wrappers in glibc before 2.36. */
static int64_t mount_by_settings(struct call *call) {
  const union argument *given = call->given;
  int target = open_target(given[1].string, given[5].integer);
  if (target == -1) return -1;
  int context = (int)syscall(SYS_fsopen, given[2].string, FSOPEN_CLOEXEC), made = -1;
  if (context >= 0) made = make_mount(context, given[0].string, given[4].strings, given[3].integer);
  unsigned empty_paths = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;
  int64_t result = made == -1 ? -1 : syscall(SYS_move_mount, made, "", target, "", empty_paths);
  if (made >= 0) closed_after(made, result);
  if (context >= 0) closed_after(context, result);
  return closed_after(target, result);
}

static int64_t unmount(struct call *call) {
  return umount2(call->given[0].string, (int)call->given[1].integer);
}

const struct addon_function mount_functions[] = {
    {"mount", "sssisb", mount_file_system, true},
    {"mountBySettings", "sssilb", mount_by_settings, true},
    {"unmount", "si", unmount, true},
    {0},
};
