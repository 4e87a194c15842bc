#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/mount.h>

#include "addon.h"
#include "arguments.h"

/* One mount(2) or umount2(2) on its way through the thread pool. */
struct mount_work {
  struct arguments arguments; /* owns the strings */
  const char *source, *target, *type, *data;
  unsigned long flags;
  int result;
  napi_async_work work;
  napi_deferred deferred;
};

static void run_mount(napi_env env, void *data) {
  (void)env;
  struct mount_work *work = data;
  int status = mount(work->source, work->target, work->type, work->flags, work->data);
  work->result = status == 0 ? 0 : -errno;
}

static void run_unmount(napi_env env, void *data) {
  (void)env;
  struct mount_work *work = data;
  work->result = umount2(work->target, (int)work->flags) == 0 ? 0 : -errno;
}

static void release(struct mount_work *work) {
  arguments_release(&work->arguments);
  free(work);
}

static void complete(napi_env env, napi_status status, void *data) {
  struct mount_work *work = data;
  int result = status == napi_ok ? work->result : -ECANCELED;
  napi_resolve_deferred(env, work->deferred, integer_value(env, result));
  napi_delete_async_work(env, work->work);
  release(work);
}

static struct mount_work *begin(napi_env env, napi_callback_info info) {
  struct mount_work *work = calloc(1, sizeof *work);
  if (work == NULL)
    napi_throw_error(env, NULL, "out of memory");
  else
    arguments_read(&work->arguments, env, info);
  return work;
}

/* The promise of the result. */
static napi_value queue(napi_env env, struct mount_work *work, napi_async_execute_callback execute) {
  napi_value promise, name;
  if (work->arguments.bad) {
    release(work);
    return NULL;
  }
  if (napi_create_string_utf8(env, "mount", NAPI_AUTO_LENGTH, &name) != napi_ok ||
      napi_create_async_work(env, NULL, name, execute, complete, work, &work->work) != napi_ok) {
    release(work);
    napi_throw_error(env, NULL, "no work can be queued");
    return NULL;
  }
  napi_create_promise(env, &work->deferred, &promise);
  napi_queue_async_work(env, work->work);
  return promise;
}

static napi_value mount_file_system(napi_env env, napi_callback_info info) {
  struct mount_work *work = begin(env, info);
  if (work == NULL) return NULL;
  work->source = string_argument(&work->arguments, 0);
  work->target = string_argument(&work->arguments, 1);
  work->type = string_argument(&work->arguments, 2);
  work->flags = integer_argument(&work->arguments, 3);
  work->data = string_argument(&work->arguments, 4);
  return queue(env, work, run_mount);
}

static napi_value unmount(napi_env env, napi_callback_info info) {
  struct mount_work *work = begin(env, info);
  if (work == NULL) return NULL;
  work->target = string_argument(&work->arguments, 0);
  work->flags = integer_argument(&work->arguments, 1);
  return queue(env, work, run_unmount);
}

const struct addon_function mount_functions[] = {
    {"mount", mount_file_system},
    {"unmount", unmount},
    {NULL, NULL},
};
