#define _GNU_SOURCE
#include <errno.h>
#include <sys/ioctl.h>
#include <sys/swap.h>

#include "pool.h"

/* One swapon(2). */
struct swap_work {
  struct pool_work pool;
  const char *path;
  int flags;
};

/* One ioctl(2) about an open file, with bytes of JavaScript's as its argument. */
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
  /* The request tells how much the kernel reads or writes. */
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

const struct addon_function volume_functions[] = {
    {"swapOn", swap_on},
    {"ioctl", control},
    {NULL, NULL},
};
