#define _GNU_SOURCE
#include <errno.h>
#include <link.h>
#include <stdint.h>
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
 * Locks the pages of the program and its libraries that are used from now on. Most of those in memory were used by the
 * start alone, so what cannot have been written to is unmapped first: it stays in the page cache until the kernel wants
 * the memory. V8 and malloc give anonymous memory back (MADV_DONTNEED), which the kernel refuses for locked memory; so that
 * is left alone.
 */
static int lock_segments(struct dl_phdr_info *object, size_t size, void *data) {
  (void)size;
  (void)data;
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
    if (segment->p_type != PT_LOAD || segment->p_filesz == 0) continue;
    uintptr_t address = object->dlpi_addr + segment->p_vaddr;
    uintptr_t start = address / page * page;
    size_t length = address + segment->p_filesz - start;
    if ((segment->p_flags & PF_W) == 0) madvise((void *)start, length, MADV_DONTNEED);
    if (mlock2((void *)start, length, MLOCK_ONFAULT) != 0) return errno;
  }
  return 0;
}

static napi_value lock_files(napi_env env, napi_callback_info info) {
  (void)info;
  errno = dl_iterate_phdr(lock_segments, NULL);
  return call_result(env, errno == 0 ? 0 : -1);
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
