#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "../functions.h"
#include "../napi/addon.h"
#include "../napi/arguments.h"
#include "../watch.h"

static napi_value open_pipe(napi_env env, napi_callback_info info) {
  (void)info;
  int pair[2];
  if (pipe2(pair, O_CLOEXEC) != 0) return call_result(env, -1);
  return pair_value(env, pair);
}

static napi_value event_fd(napi_env env, napi_callback_info info) {
  (void)info;
  return call_result(env, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

static napi_value set_pipe_size(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  int fd = integer_argument(&arguments, 0);
  int size = integer_argument(&arguments, 1);
  if (arguments.bad) return NULL;
  return call_result(env, fcntl(fd, F_SETPIPE_SZ, size));
}

static napi_value pipe_size(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  int fd = integer_argument(&arguments, 0);
  if (arguments.bad) return NULL;
  return call_result(env, fcntl(fd, F_GETPIPE_SZ));
}

static napi_value set_non_blocking(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  int fd = integer_argument(&arguments, 0);
  bool non_blocking = boolean_argument(&arguments, 1);
  if (arguments.bad) return NULL;
  int flags = fcntl(fd, F_GETFL);
  if (flags == -1) return call_result(env, -1);
  flags = non_blocking ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
  return call_result(env, fcntl(fd, F_SETFL, flags));
}

static napi_value duplicate(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  int fd = integer_argument(&arguments, 0);
  if (arguments.bad) return NULL;
  return call_result(env, fcntl(fd, F_DUPFD_CLOEXEC, 3));
}

/* Fewer bytes are copied from the scratch buffer, because allocating a buffer for the read costs more. */
#define COPIED_BYTES 4096

/* Reads as many bytes as are known to be readable, into a buffer allocated for them. */
static napi_value read_whole(napi_env env, int fd, size_t bytes) {
  void *data;
  napi_value buffer = NULL;
  if (napi_create_buffer(env, bytes, &data, &buffer) != napi_ok) return NULL;
  ssize_t length = read(fd, data, bytes);
  if (length == -1) return call_result(env, -1);
  /* Another process read from the same pipe or socket meanwhile. */
  if ((size_t)length < bytes) napi_create_buffer_copy(env, length, data, NULL, &buffer);
  return buffer;
}

static napi_value read_once(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  int fd = integer_argument(&arguments, 0);
  int64_t most = integer_argument(&arguments, 1);
  if (arguments.bad) return NULL;
  if (most < 0) most = 0;
  int ready = 0;
  bool ready_is_known = ioctl(fd, FIONREAD, &ready) == 0;
  if (ready_is_known && ready >= COPIED_BYTES && most >= COPIED_BYTES)
    return read_whole(env, fd, ready < most ? ready : most);
  char *scratch = addon_of(env)->scratch;
  ssize_t length = read(fd, scratch, most < SCRATCH_BYTES ? most : SCRATCH_BYTES);
  if (length == -1) return call_result(env, -1);
  napi_value buffer = NULL;
  napi_create_buffer_copy(env, length, scratch, NULL, &buffer);
  return buffer;
}

static napi_value readable_bytes(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  int fd = integer_argument(&arguments, 0);
  if (arguments.bad) return NULL;
  int ready = 0;
  int result = ioctl(fd, FIONREAD, &ready);
  return call_result(env, result == -1 ? -1 : ready);
}

static napi_value write_once(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  size_t length;
  int fd = integer_argument(&arguments, 0);
  const void *bytes = bytes_argument(&arguments, 1, &length);
  if (arguments.bad) return NULL;
  return call_result(env, write(fd, bytes, length));
}

static napi_value close_descriptor(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  int fd = integer_argument(&arguments, 0);
  if (arguments.bad) return NULL;
  /* The loop would poll the next file that gets this number. */
  if (watch_is_pending(addon_of(env), fd)) return integer_value(env, -EBUSY);
  return call_result(env, close(fd));
}

/* Returns the other side of a pty, by no path: /dev/pts may be missing. */
static int open_terminal_of(int master) {
  int unlock = 0;
  if (ioctl(master, TIOCSPTLCK, &unlock) != 0) return -1;
  return ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
}

static napi_value open_pty(napi_env env, napi_callback_info info) {
  (void)info;
  int pair[2] = {posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK), -1};
  if (pair[0] == -1) return call_result(env, -1);
  pair[1] = open_terminal_of(pair[0]);
  if (pair[1] != -1) return pair_value(env, pair);
  int error = errno;
  close(pair[0]);
  return integer_value(env, -error);
}

const struct addon_function descriptor_functions[] = {
    {"pipe", open_pipe},
    {"pty", open_pty},
    {"pipeSize", pipe_size},
    {"setPipeSize", set_pipe_size},
    {"setNonBlocking", set_non_blocking},
    {"duplicate", duplicate},
    {"read", read_once},
    {"readableBytes", readable_bytes},
    {"write", write_once},
    {"close", close_descriptor},
    {"eventFd", event_fd},
    {NULL, NULL},
};
