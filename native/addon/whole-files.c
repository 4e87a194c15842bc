/*
 * Reading and writing whole files, each on one trip to a thread of libuv's pool: most of what the agent reads is a few
 * bytes of proc, sysfs or a cgroup, where a trip for each of open, read and close is most of the time.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "pool.h"

/*
 * What a file is read into at first. These kernel files do not tell their size, and those of /proc/sys give one read
 * what it has room for, and the next one nothing.
 */
#define FIRST_BYTES 65536

struct read_work {
  struct pool_work pool;
  const char *path;
};

struct write_work {
  struct pool_work pool;
  const char *path;
  const char *bytes;
  size_t length;
  mode_t mode;
};

static ssize_t read_some(int fd, char *buffer, size_t size) {
  ssize_t length;
  do length = read(fd, buffer, size);
  while (length == -1 && errno == EINTR);
  return length;
}

/* 0, or an errno; what was read is the pool's to free, either way. */
static int read_to_end(int fd, struct pool_work *pool) {
  size_t size = 0;
  for (;;) {
    if (pool->length == size) {
      size = size == 0 ? FIRST_BYTES : 2 * size;
      char *larger = realloc(pool->bytes, size);
      if (larger == NULL) return ENOMEM;
      pool->bytes = larger;
    }
    ssize_t length = read_some(fd, pool->bytes + pool->length, size - pool->length);
    if (length <= 0) return length == 0 ? 0 : errno;
    pool->length += length;
  }
}

static void run_read(struct pool_work *pool) {
  struct read_work *work = (struct read_work *)pool;
  int fd = open(work->path, O_RDONLY | O_CLOEXEC);
  if (fd == -1) {
    pool->result = -errno;
    return;
  }
  pool->result = -read_to_end(fd, pool);
  close(fd);
}

/* 0, or an errno. Nothing is written too: the kernel's own files may take it for a value. */
static int write_to_end(int fd, const char *bytes, size_t length) {
  size_t done = 0;
  do {
    ssize_t written = write(fd, bytes + done, length - done);
    if (written == -1 && errno != EINTR) return errno;
    if (written > 0) done += written;
  } while (done < length);
  return 0;
}

static void run_write(struct pool_work *pool) {
  struct write_work *work = (struct write_work *)pool;
  int fd = open(work->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, work->mode);
  if (fd == -1) {
    pool->result = -errno;
    return;
  }
  int error = write_to_end(fd, work->bytes, work->length);
  /* A network file system tells of a failed write only here. */
  if (close(fd) == -1 && error == 0 && errno != EINTR) error = errno;
  pool->result = -error;
}

static napi_value read_file(napi_env env, napi_callback_info info) {
  struct read_work *work = pool_begin(env, info, sizeof *work);
  if (work == NULL) return NULL;
  work->path = string_argument(&work->pool.arguments, 0);
  return pool_queue(env, &work->pool, run_read);
}

static napi_value write_file(napi_env env, napi_callback_info info) {
  struct write_work *work = pool_begin(env, info, sizeof *work);
  if (work == NULL) return NULL;
  work->path = string_argument(&work->pool.arguments, 0);
  work->bytes = bytes_argument(&work->pool.arguments, 1, &work->length);
  work->mode = integer_argument(&work->pool.arguments, 2);
  pool_keep(env, &work->pool, 1);
  return pool_queue(env, &work->pool, run_write);
}

const struct addon_function whole_file_functions[] = {
    {"readFile", read_file},
    {"writeFile", write_file},
    {NULL, NULL},
};
