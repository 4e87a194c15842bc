#define _GNU_SOURCE
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "addon.h"
#include "arguments.h"

static napi_value boottime(napi_env env, napi_callback_info info) {
  (void)info;
  struct timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  napi_value value = NULL;
  napi_create_bigint_uint64(env, (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec, &value);
  return value;
}

static napi_value set_file_limit(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  struct rlimit limit;
  limit.rlim_cur = integer_argument(&arguments, 0);
  limit.rlim_max = integer_argument(&arguments, 1);
  if (arguments.bad) return NULL;
  return call_result(env, setrlimit(RLIMIT_NOFILE, &limit));
}

static napi_value set_time(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  struct timespec time;
  time.tv_sec = integer_argument(&arguments, 0);
  time.tv_nsec = integer_argument(&arguments, 1);
  if (arguments.bad) return NULL;
  return call_result(env, clock_settime(CLOCK_REALTIME, &time));
}

static napi_value set_hostname(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  const char *name = string_argument(&arguments, 0);
  napi_value result = NULL;
  if (!arguments.bad) result = call_result(env, sethostname(name, strlen(name)));
  arguments_release(&arguments);
  return result;
}

static napi_value set_window_size(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  int fd = integer_argument(&arguments, 0);
  struct winsize size = {0};
  size.ws_row = integer_argument(&arguments, 1);
  size.ws_col = integer_argument(&arguments, 2);
  if (arguments.bad) return NULL;
  return call_result(env, ioctl(fd, TIOCSWINSZ, &size));
}

const struct addon_function system_functions[] = {
    {"boottimeNs", boottime},
    {"setFileLimit", set_file_limit},
    {"setHostname", set_hostname},
    {"setTime", set_time},
    {"setWindowSize", set_window_size},
    {NULL, NULL},
};
