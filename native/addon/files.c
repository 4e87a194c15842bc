#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <linux/openat2.h>

#include "pool.h"

static napi_value open_at(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  int directory = integer_argument(&arguments, 0);
  const char *path = string_argument(&arguments, 1);
  struct open_how how = {
      .flags = property_argument(&arguments, 2, "flags") | O_CLOEXEC,
      .mode = property_argument(&arguments, 2, "mode"),
      .resolve = property_argument(&arguments, 2, "resolve"),
  };
  napi_value result = NULL;
  if (!arguments.bad) result = call_result(env, syscall(SYS_openat2, directory, path, &how, sizeof how));
  arguments_release(&arguments);
  return result;
}

struct reach_work {
  struct pool_work pool;
  const char *path;
};

static void run_reach(struct pool_work *pool) {
  struct reach_work *work = (struct reach_work *)pool;
  struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS};
  int fd = syscall(SYS_openat2, AT_FDCWD, work->path, &how, sizeof how);
  pool->result = fd == -1 ? -errno : 0;
  if (fd != -1) close(fd);
}

static napi_value reach_without_links(napi_env env, napi_callback_info info) {
  struct reach_work *work = pool_begin(env, info, sizeof *work);
  if (work == NULL) return NULL;
  work->path = string_argument(&work->pool.arguments, 0);
  return pool_queue(env, &work->pool, run_reach);
}

static napi_value make_node(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  const char *path = string_argument(&arguments, 0);
  mode_t mode = integer_argument(&arguments, 1);
  unsigned major = integer_argument(&arguments, 2);
  unsigned minor = integer_argument(&arguments, 3);
  napi_value result = NULL;
  if (!arguments.bad) result = call_result(env, mknod(path, mode, makedev(major, minor)));
  arguments_release(&arguments);
  return result;
}

const struct addon_function file_functions[] = {
    {"openAt2", open_at},
    {"makeNode", make_node},
    {"reachWithoutLinks", reach_without_links},
    {NULL, NULL},
};
