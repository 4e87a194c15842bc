#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <linux/openat2.h>

#include "addon.h"
#include "arguments.h"

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
    {NULL, NULL},
};
