/* Files in memory (memfd_create(2)), and splice(2), which moves bytes and both positions in one call. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../functions.h"
#include "../napi/addon.h"
#include "../napi/arguments.h"

static napi_value memory_file(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  const char *name = string_argument(&arguments, 0);
  napi_value result = NULL;
  if (!arguments.bad) result = call_result(env, memfd_create(name, MFD_CLOEXEC));
  arguments_release(&arguments);
  return result;
}

static napi_value splice_once(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  int source = integer_argument(&arguments, 0);
  int target = integer_argument(&arguments, 1);
  int64_t most = integer_argument(&arguments, 2);
  if (arguments.bad) return NULL;
  ssize_t moved;
  do moved = splice(source, NULL, target, NULL, most, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
  while (moved == -1 && errno == EINTR);
  return call_result(env, moved);
}

static napi_value read_at(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  int fd = integer_argument(&arguments, 0);
  int64_t offset = integer_argument(&arguments, 1);
  int64_t length = integer_argument(&arguments, 2);
  if (arguments.bad) return NULL;
  void *data;
  napi_value buffer = NULL;
  if (napi_create_buffer(env, length < 0 ? 0 : length, &data, &buffer) != napi_ok) return NULL;
  ssize_t count = pread(fd, data, length < 0 ? 0 : length, offset);
  if (count == -1) return call_result(env, -1);
  /* The file is shorter. */
  if (count < length) napi_create_buffer_copy(env, count, data, NULL, &buffer);
  return buffer;
}

static napi_value write_at(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  size_t length;
  int fd = integer_argument(&arguments, 0);
  int64_t offset = integer_argument(&arguments, 1);
  const void *bytes = bytes_argument(&arguments, 2, &length);
  if (arguments.bad) return NULL;
  return call_result(env, pwrite(fd, bytes, length, offset));
}

static napi_value position_of(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  int fd = integer_argument(&arguments, 0);
  if (arguments.bad) return NULL;
  return call_result(env, lseek(fd, 0, SEEK_CUR));
}

static napi_value set_position(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  int fd = integer_argument(&arguments, 0);
  int64_t offset = integer_argument(&arguments, 1);
  if (arguments.bad) return NULL;
  return call_result(env, lseek(fd, offset, SEEK_SET));
}

static napi_value truncate_file(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  int fd = integer_argument(&arguments, 0);
  int64_t size = integer_argument(&arguments, 1);
  if (arguments.bad) return NULL;
  return call_result(env, ftruncate(fd, size));
}

static napi_value punch_hole(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  int fd = integer_argument(&arguments, 0);
  int64_t offset = integer_argument(&arguments, 1);
  int64_t length = integer_argument(&arguments, 2);
  if (arguments.bad) return NULL;
  return call_result(env, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, length));
}

const struct addon_function memory_file_functions[] = {
    {"memoryFile", memory_file}, {"splice", splice_once},     {"readAt", read_at},
    {"writeAt", write_at},       {"positionOf", position_of}, {"setPosition", set_position},
    {"truncate", truncate_file}, {"punchHole", punch_hole},   {NULL, NULL},
};
