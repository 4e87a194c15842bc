#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <unistd.h>

#include "../functions.h"
#include "../napi/pool.h"
#include "files.h"

/* One mount(2) or umount2(2) call. */
struct mount_work {
  struct pool_work pool;
  const char *source, *target, *type, *data;
  unsigned long flags;
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

static napi_value unmount(napi_env env, napi_callback_info info) {
  struct mount_work *work = pool_begin(env, info, sizeof *work);
  if (work == NULL) return NULL;
  work->target = string_argument(&work->pool.arguments, 0);
  work->flags = integer_argument(&work->pool.arguments, 1);
  return pool_queue(env, &work->pool, run_unmount);
}

const struct addon_function mount_functions[] = {
    {"mount", mount_file_system},
    {"unmount", unmount},
    {NULL, NULL},
};
