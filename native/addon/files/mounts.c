#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../functions.h"
#include "../napi/pool.h"
#include "files.h"

/* One mount or umount2(2) call. */
struct mount_work {
  struct pool_work pool;
  const char *source, *target, *type, *data;
  char **settings;     /* in place of `data`: each is "key=value", or "key" */
  unsigned long flags; /* of fsmount(2) where there are settings */
  bool refuse_links;
};

static int mount_at(const struct mount_work *work, const char *target) {
  return mount(work->source, target, work->type, work->flags, work->data) == 0 ? 0 : -errno;
}

static void run_mount(struct pool_work *pool) {
  struct mount_work *work = (struct mount_work *)pool;
  if (!work->refuse_links) {
    pool->result = mount_at(work, work->target);
    return;
  }
  int fd = open_without_links(work->target);
  pool->result = fd;
  if (fd < 0) return;
  char target[64];
  snprintf(target, sizeof target, "/proc/self/fd/%d", fd);
  pool->result = mount_at(work, target);
  close(fd);
}

static int set_string(int context, const char *key, const char *value) {
  return (int)syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, key, value, 0);
}

static int set(int context, char *setting) {
  char *equals = strchr(setting, '=');
  if (equals == NULL) return (int)syscall(SYS_fsconfig, context, FSCONFIG_SET_FLAG, setting, NULL, 0);
  *equals = '\0';
  return set_string(context, setting, equals + 1);
}

/* Returns the descriptor of a mount that is not attached yet, or -1. */
static int make_mount(const struct mount_work *work, int context) {
  if (set_string(context, "source", work->source) != 0) return -1;
  for (char **setting = work->settings; *setting != NULL; setting++)
    if (set(context, *setting) != 0) return -1;
  if (syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) != 0) return -1;
  return (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, work->flags);
}

static int open_target(const struct mount_work *work) {
  if (work->refuse_links) return open_without_links(work->target);
  int fd = open(work->target, O_PATH | O_CLOEXEC);
  return fd < 0 ? -errno : fd;
}

/* The calls have no wrappers in glibc before 2.36. */
static void run_mount_by_settings(struct pool_work *pool) {
  struct mount_work *work = (struct mount_work *)pool;
  int target = open_target(work);
  pool->result = target;
  if (target < 0) return;
  int context = (int)syscall(SYS_fsopen, work->type, FSOPEN_CLOEXEC), made = -1;
  if (context >= 0) made = make_mount(work, context);
  unsigned empty_paths = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;
  bool attached = made >= 0 && syscall(SYS_move_mount, made, "", target, "", empty_paths) == 0;
  pool->result = attached ? 0 : -errno;
  if (made >= 0) close(made);
  if (context >= 0) close(context);
  close(target);
}

static void run_unmount(struct pool_work *pool) {
  struct mount_work *work = (struct mount_work *)pool;
  pool->result = umount2(work->target, (int)work->flags) == 0 ? 0 : -errno;
}

static napi_value mount_file_system(napi_env env, napi_callback_info info) {
  struct mount_work *work = pool_begin(env, info, sizeof *work);
  if (work == NULL) return NULL;
  work->source = string_argument(&work->pool.arguments, 0);
  work->target = string_argument(&work->pool.arguments, 1);
  work->type = string_argument(&work->pool.arguments, 2);
  work->flags = integer_argument(&work->pool.arguments, 3);
  work->data = string_argument(&work->pool.arguments, 4);
  work->refuse_links = boolean_argument(&work->pool.arguments, 5);
  return pool_queue(env, &work->pool, run_mount);
}

static napi_value mount_by_settings(napi_env env, napi_callback_info info) {
  struct mount_work *work = pool_begin(env, info, sizeof *work);
  if (work == NULL) return NULL;
  work->source = string_argument(&work->pool.arguments, 0);
  work->target = string_argument(&work->pool.arguments, 1);
  work->type = string_argument(&work->pool.arguments, 2);
  work->flags = integer_argument(&work->pool.arguments, 3);
  work->settings = strings_argument(&work->pool.arguments, 4);
  work->refuse_links = boolean_argument(&work->pool.arguments, 5);
  return pool_queue(env, &work->pool, run_mount_by_settings);
}

static napi_value unmount(napi_env env, napi_callback_info info) {
  struct mount_work *work = pool_begin(env, info, sizeof *work);
  if (work == NULL) return NULL;
  work->target = string_argument(&work->pool.arguments, 0);
  work->flags = integer_argument(&work->pool.arguments, 1);
  return pool_queue(env, &work->pool, run_unmount);
}

const struct addon_function mount_functions[] = {
    {"mount", mount_file_system},
    {"mountBySettings", mount_by_settings},
    {"unmount", unmount},
    {NULL, NULL},
};
