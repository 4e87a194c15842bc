#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../functions.h"
#include "../napi/addon.h"
#include "../napi/call.h"
#include "../watch.h"

static int64_t open_pipe(struct call *call) {
  return pair_made(call, pipe2(call->pair, O_CLOEXEC));
}

static int64_t event_fd(struct call *call) {
  (void)call;
  return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

static int64_t set_pipe_size(struct call *call) {
  return fcntl(call->given[0].integer, F_SETPIPE_SZ, (int)call->given[1].integer);
}

static int64_t pipe_size(struct call *call) {
  return fcntl(call->given[0].integer, F_GETPIPE_SZ);
}

static int64_t set_non_blocking(struct call *call) {
  int is_on = call->given[1].integer != 0;
  return ioctl(call->given[0].integer, FIONBIO, &is_on);
}

static int64_t duplicate(struct call *call) {
  return fcntl(call->given[0].integer, F_DUPFD_CLOEXEC, 3);
}

/* Smaller reads are copied out of the scratch buffer, because allocating a buffer for them costs more. */
#define COPIED_BYTES 4096

static int64_t read_whole(struct call *call, int fd, size_t bytes) {
  void *data;
  if (napi_create_buffer(call->env, bytes, &data, &call->value) != napi_ok) return -ENOMEM;
  ssize_t length = read(fd, data, bytes);
  /* Another process has read from the same pipe or socket. */
  if (length >= 0 && (size_t)length < bytes) napi_create_buffer_copy(call->env, length, data, NULL, &call->value);
  return length;
}

static int64_t read_once(struct call *call) {
  int fd = call->given[0].integer;
  int64_t most = call->given[1].integer;
  if (most < 0) most = 0;
  int ready = 0;
  bool ready_is_known = ioctl(fd, FIONREAD, &ready) == 0;
  if (ready_is_known && ready >= COPIED_BYTES && most >= COPIED_BYTES)
    return read_whole(call, fd, ready < most ? ready : most);
  char *scratch = addon_of(call->env)->scratch;
  ssize_t length = read(fd, scratch, most < SCRATCH_BYTES ? most : SCRATCH_BYTES);
  if (length >= 0) napi_create_buffer_copy(call->env, length, scratch, NULL, &call->value);
  return length;
}

static int64_t readable_bytes(struct call *call) {
  int ready = 0;
  return ioctl(call->given[0].integer, FIONREAD, &ready) == -1 ? -1 : ready;
}

static int64_t peek(struct call *call) {
  char *scratch = addon_of(call->env)->scratch;
  size_t most = (size_t)call->given[1].integer;
  ssize_t length = recv(call->given[0].integer, scratch, most < SCRATCH_BYTES ? most : SCRATCH_BYTES, MSG_PEEK);
  if (length >= 0) napi_create_buffer_copy(call->env, length, scratch, NULL, &call->value);
  return length;
}

static int64_t write_once(struct call *call) {
  return write(call->given[0].integer, call->given[1].data.bytes, call->given[1].data.length);
}

static int64_t close_descriptor(struct call *call) {
  int fd = call->given[0].integer;
  struct addon *addon = addon_of(call->env);
  /* Pending watches would watch the next file that gets this number. */
  if (watch_is_pending(addon, fd)) return -EBUSY;
  watch_forget(addon, fd);
  return close(fd);
}

/* Opens the other side of a pty by ioctl(2), because /dev/pts may be missing. */
static int open_terminal_of(int master) {
  int unlock = 0;
  if (ioctl(master, TIOCSPTLCK, &unlock) != 0) return -1;
  return ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
}

static int64_t open_pty(struct call *call) {
  call->pair[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
  if (call->pair[0] == -1) return -1;
  call->pair[1] = open_terminal_of(call->pair[0]);
  return call->pair[1] == -1 ? closed_after(call->pair[0], -1) : pair_made(call, 0);
}

const struct addon_function descriptor_functions[] = {
    {"pipe", "", open_pipe, false},
    {"pty", "", open_pty, false},
    {"pipeSize", "i", pipe_size, false},
    {"setPipeSize", "ii", set_pipe_size, false},
    {"setNonBlocking", "ib", set_non_blocking, false},
    {"duplicate", "i", duplicate, false},
    {"read", "ii", read_once, false},
    {"readableBytes", "i", readable_bytes, false},
    {"peek", "ii", peek, false},
    {"write", "id", write_once, false},
    {"close", "i", close_descriptor, false},
    {"eventFd", "", event_fd, false},
    {0},
};
