#define _GNU_SOURCE
#include <errno.h>
#include <sys/mount.h>

#include "pool.h"

/* One mount(2) or umount2(2). */
struct mount_work {
  struct pool_work pool;
  const char *source, *target, *type, *data;
  unsigned long flags;
};

static void run_mount(struct pool_work *pool) {
  struct mount_work *work = (struct mount_work *)pool;
  int status = mount(work->source, work->target, work->type, work->flags, work->data);
  pool->result = status == 0 ? 0 : -errno;
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
