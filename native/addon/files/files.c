#define _GNU_SOURCE
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <linux/openat2.h>

#include "../functions.h"
#include "../napi/pool.h"

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

int open_without_links(const char *path) {
  struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS};
  int fd = syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
  return fd == -1 ? -errno : fd;
}

static void run_reach(struct pool_work *pool) {
  struct reach_work *work = (struct reach_work *)pool;
  int fd = open_without_links(work->path);
  pool->result = fd < 0 ? fd : 0;
  if (fd >= 0) close(fd);
}

static napi_value reach_without_links(napi_env env, napi_callback_info info) {
  struct reach_work *work = pool_begin(env, info, sizeof *work);
  if (work == NULL) return NULL;
  work->path = string_argument(&work->pool.arguments, 0);
  return pool_queue(env, &work->pool, run_reach);
}

struct below_work {
  struct pool_work pool;
  int directory;
  const char *path;
};

static void run_open_below(struct pool_work *pool) {
  struct below_work *work = (struct below_work *)pool;
  struct open_how how = {
      .flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
      .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
  };
  int fd = syscall(SYS_openat2, work->directory, work->path, &how, sizeof how);
  pool->result = fd == -1 ? -errno : fd;
}

static napi_value open_below(napi_env env, napi_callback_info info) {
  struct below_work *work = pool_begin(env, info, sizeof *work);
  if (work == NULL) return NULL;
  work->directory = integer_argument(&work->pool.arguments, 0);
  work->path = string_argument(&work->pool.arguments, 1);
  return pool_queue(env, &work->pool, run_open_below);
}

/* Returns 1 when the file contains the device number, 0 when it does not or is absent, or -errno. */
static int contains_number(const char *path, dev_t device) {
  char found[32] = "", wanted[32];
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t length = fd == -1 ? -1 : read(fd, found, sizeof found - 1);
  int error = errno;
  if (fd != -1) close(fd);
  /* A device may disappear during the check. */
  if (length == -1) return error == ENOENT || error == ENODEV ? 0 : -error;
  snprintf(wanted, sizeof wanted, "%u:%u\n", major(device), minor(device));
  return strcmp(found, wanted) == 0;
}

static int is_node_of(const char *node, const char *numbers) {
  struct stat status;
  if (stat(node, &status) != 0) return errno == ENOENT ? 0 : -errno;
  return S_ISBLK(status.st_mode) ? contains_number(numbers, status.st_rdev) : 0;
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

/*
 * readFile and writeFile handle a whole file in one trip to a thread. Most files that the agent reads are a few bytes
 * of proc, sysfs or a cgroup, where separate trips for open, read and close would take most of the time.
 */

/*
 * The size of the first read. Kernel files do not report their size, and a file of /proc/sys returns no more than the
 * first read has room for.
 */
#define FIRST_BYTES 65536

struct read_work {
  struct pool_work pool;
  const char *path;
  size_t max_bytes;
};

struct read_all_work {
  struct pool_work pool;
  char **paths;
  size_t max_bytes;
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

/* Returns 0 or an errno: EFBIG above `max_bytes`. The pool frees the bytes in every case. */
static int read_to_end(int fd, struct pool_work *pool, size_t max_bytes) {
  size_t size = 0;
  for (;;) {
    if (pool->length > max_bytes) return EFBIG;
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
  pool->result = -read_to_end(fd, pool, work->max_bytes);
  close(fd);
}

/* Makes room for `bytes` more. Returns false when there is no memory. */
static bool reserve(struct pool_work *pool, size_t *size, size_t bytes) {
  if (pool->length + bytes <= *size) return true;
  size_t larger = 2 * *size > pool->length + bytes ? 2 * *size : pool->length + bytes;
  char *moved = realloc(pool->bytes, larger);
  if (moved == NULL) return false;
  pool->bytes = moved;
  *size = larger;
  return true;
}

/* Adds one read of the file. A file that cannot be read, or is longer, adds nothing. */
static void add_file(struct pool_work *pool, const char *path, size_t max_bytes) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd == -1) return;
  ssize_t length = read_some(fd, pool->bytes + pool->length, max_bytes + 1);
  if (length > 0 && (size_t)length <= max_bytes) pool->length += (size_t)length;
  close(fd);
}

static void run_read_all(struct pool_work *pool) {
  struct read_all_work *work = (struct read_all_work *)pool;
  size_t size = 0;
  for (char **path = work->paths; *path != NULL; path++) {
    if (!reserve(pool, &size, work->max_bytes + 2)) {
      pool->result = -ENOMEM;
      return;
    }
    add_file(pool, *path, work->max_bytes);
    pool->bytes[pool->length++] = '\0';
  }
}

/* Returns 0 or an errno. Zero bytes are written too, because some kernel files take an empty write as a value. */
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
  /* A network file system may report a failed write only at close. */
  if (close(fd) == -1 && error == 0 && errno != EINTR) error = errno;
  pool->result = -error;
}

static napi_value read_file(napi_env env, napi_callback_info info) {
  struct read_work *work = pool_begin(env, info, sizeof *work);
  if (work == NULL) return NULL;
  work->path = string_argument(&work->pool.arguments, 0);
  work->max_bytes = integer_argument(&work->pool.arguments, 1);
  return pool_queue(env, &work->pool, run_read);
}

static napi_value read_files(napi_env env, napi_callback_info info) {
  struct read_all_work *work = pool_begin(env, info, sizeof *work);
  if (work == NULL) return NULL;
  work->paths = strings_argument(&work->pool.arguments, 0);
  work->max_bytes = integer_argument(&work->pool.arguments, 1);
  return pool_queue(env, &work->pool, run_read_all);
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

const struct addon_function file_functions[] = {
    {"openAt2", open_at},
    {"makeNode", make_node},
    {"reachWithoutLinks", reach_without_links},
    {"openBelow", open_below},
    {"isBlockNodeOf", is_block_node_of},
    {"readFile", read_file},
    {"readFiles", read_files},
    {"writeFile", write_file},
    {NULL, NULL},
};
