#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <linux/openat2.h>

#include "pool.h"
#include "reach.h"

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

int reach(const char *path) {
  struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS};
  int fd = syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
  return fd == -1 ? -errno : fd;
}

static void run_reach(struct pool_work *pool) {
  struct reach_work *work = (struct reach_work *)pool;
  int fd = reach(work->path);
  pool->result = fd < 0 ? fd : 0;
  if (fd >= 0) close(fd);
}

static napi_value reach_without_links(napi_env env, napi_callback_info info) {
  struct reach_work *work = pool_begin(env, info, sizeof *work);
  if (work == NULL) return NULL;
  work->path = string_argument(&work->pool.arguments, 0);
  return pool_queue(env, &work->pool, run_reach);
}

/* 1 when the file says the numbers of the device, 0 when it does not or is not there, or -errno. */
static int says(const char *path, dev_t device) {
  char said[32] = "", numbers[32];
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t length = fd == -1 ? -1 : read(fd, said, sizeof said - 1);
  int error = errno;
  if (fd != -1) close(fd);
  /* Devices come and go while they are looked at. */
  if (length == -1) return error == ENOENT || error == ENODEV ? 0 : -error;
  snprintf(numbers, sizeof numbers, "%u:%u\n", major(device), minor(device));
  return strcmp(said, numbers) == 0;
}

static int is_node_of(const char *node, const char *numbers) {
  struct stat status;
  if (stat(node, &status) != 0) return errno == ENOENT ? 0 : -errno;
  return S_ISBLK(status.st_mode) ? says(numbers, status.st_rdev) : 0;
}

static napi_value is_block_node_of(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  const char *node = string_argument(&arguments, 0);
  const char *numbers = string_argument(&arguments, 1);
  napi_value result = NULL;
  if (!arguments.bad) result = integer_value(env, is_node_of(node, numbers));
  arguments_release(&arguments);
  return result;
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
    {"isBlockNodeOf", is_block_node_of},
    {NULL, NULL},
};
