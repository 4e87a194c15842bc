#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/swap.h>
#include <time.h>
#include <unistd.h>

#include "functions.h"
#include "napi/pool.h"

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
  pid_t pid = integer_argument(&arguments, 0);
  limit.rlim_cur = integer_argument(&arguments, 1);
  limit.rlim_max = integer_argument(&arguments, 2);
  if (arguments.bad) return NULL;
  return call_result(env, prlimit(pid, RLIMIT_NOFILE, &limit, NULL));
}

/*
 * Locks the pages of mapped files, when they are in memory: the program's own text above all, which the kernel would drop
 * and read again from the disk. V8 and malloc give anonymous memory back (MADV_DONTNEED), which the kernel refuses for
 * locked memory; so that is left alone.
 */
static int lock_mapped_files(void) {
  FILE *maps = fopen("/proc/self/maps", "re");
  if (maps == NULL) return -1;
  char *line = NULL;
  size_t capacity = 0;
  int error = 0;
  while (getline(&line, &capacity, maps) != -1) {
    unsigned long start, end, inode;
    char device[32];
    if (sscanf(line, "%lx-%lx %*4s %*x %31s %lu", &start, &end, device, &inode) != 4 || inode == 0) continue;
    if (mlock2((void *)start, end - start, MLOCK_ONFAULT) != 0 && error == 0) error = errno;
  }
  free(line);
  fclose(maps);
  errno = error;
  return error == 0 ? 0 : -1;
}

static napi_value lock_files(napi_env env, napi_callback_info info) {
  (void)info;
  return call_result(env, lock_mapped_files());
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

/* One swapon(2) call. */
struct swap_work {
  struct pool_work pool;
  const char *path;
  int flags;
};

/* One ioctl(2) call whose argument is memory that JavaScript owns. */
struct control_work {
  struct pool_work pool;
  int fd;
  unsigned long request;
  void *bytes;
  size_t length;
};

static void run_swap_on(struct pool_work *pool) {
  struct swap_work *work = (struct swap_work *)pool;
  pool->result = swapon(work->path, work->flags) == 0 ? 0 : -errno;
}

static void run_control(struct pool_work *pool) {
  struct control_work *work = (struct control_work *)pool;
  /* The request number encodes how many bytes the kernel reads or writes. */
  if (work->length < _IOC_SIZE(work->request)) {
    pool->result = -EINVAL;
    return;
  }
  int result = ioctl(work->fd, work->request, work->bytes);
  pool->result = result == -1 ? -errno : result;
}

static napi_value swap_on(napi_env env, napi_callback_info info) {
  struct swap_work *work = pool_begin(env, info, sizeof *work);
  if (work == NULL) return NULL;
  work->path = string_argument(&work->pool.arguments, 0);
  work->flags = integer_argument(&work->pool.arguments, 1);
  return pool_queue(env, &work->pool, run_swap_on);
}

static napi_value control(napi_env env, napi_callback_info info) {
  struct control_work *work = pool_begin(env, info, sizeof *work);
  if (work == NULL) return NULL;
  struct arguments *arguments = &work->pool.arguments;
  work->fd = integer_argument(arguments, 0);
  work->request = integer_argument(arguments, 1);
  work->bytes = (void *)bytes_argument(arguments, 2, &work->length);
  pool_keep(env, &work->pool, 2);
  return pool_queue(env, &work->pool, run_control);
}

const struct addon_function system_functions[] = {
    {"boottimeNs", boottime},
    {"lockMappedFiles", lock_files},
    {"setFileLimit", set_file_limit},
    {"setHostname", set_hostname},
    {"setTime", set_time},
    {"setWindowSize", set_window_size},
    {"swapOn", swap_on},
    {"ioctl", control},
    {NULL, NULL},
};
