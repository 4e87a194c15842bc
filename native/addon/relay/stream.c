/*
 * splice(2) moves bytes from a pipe to a socket without a copy in user space. Ptys, and sockets as a source, are read
 * and written. A stream reads nothing while it has unsent bytes: its memory is bounded, and the kernel's back-pressure
 * reaches the source.
 */
#define _GNU_SOURCE
#include "stream.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* The default limit of a pipe's size: one call empties the pipe. */
#define SPLICE_BYTES (1024 * 1024)
#define CALLS_PER_MOVE 16
/* What a drain moves at most from a source that is not a pipe: more than the buffers of a pty or socket hold. */
#define DRAIN_BYTES (1024 * 1024)

static int make_non_blocking(int fd) {
  int flags = fcntl(fd, F_GETFL);
  return flags == -1 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) == -1 ? -errno : 0;
}

/* Returns 0 or -errno. EINVAL means that the descriptor has no readiness to wait for. */
static int check_pollable(int fd) {
  struct stat status;
  if (fstat(fd, &status) != 0) return -errno;
  return S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode) || S_ISCHR(status.st_mode) ? 0 : -EINVAL;
}

static bool is_pipe(int fd) {
  struct stat status;
  return fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode);
}

int stream_open(struct stream *stream, int source, int target) {
  int result = check_pollable(source);
  if (result == 0) result = check_pollable(target);
  if (result == 0) result = make_non_blocking(source);
  if (result == 0) result = make_non_blocking(target);
  if (result != 0) return result;
  memset(stream, 0, sizeof *stream);
  stream->source = source;
  stream->target = target;
  stream->can_splice = is_pipe(source);
  return 0;
}

void stream_close(struct stream *stream) {
  free(stream->unsent);
  stream->unsent = NULL;
  close(stream->source);
  close(stream->target);
}

void stream_drain(struct stream *stream) {
  int capacity = fcntl(stream->source, F_GETPIPE_SZ);
  stream->is_draining = true;
  stream->rest_bytes = capacity > 0 ? (size_t)capacity : DRAIN_BYTES;
}

bool stream_has_reader(const struct stream *stream) {
  /* Sends zero bytes, which fails as a real send does. A target that is not a socket reports a lost reader by epoll. */
  return send(stream->target, NULL, 0, MSG_NOSIGNAL | MSG_DONTWAIT) == 0 || errno == EAGAIN || errno == ENOTSOCK;
}

/* How many bytes one call may take from the source. */
static size_t allowed(const struct stream *stream, size_t most) {
  return stream->is_draining && stream->rest_bytes < most ? stream->rest_bytes : most;
}

static void count_taken(struct stream *stream, size_t bytes) {
  if (stream->is_draining) stream->rest_bytes -= bytes;
}

static enum stream_state end(struct stream *stream, int error) {
  stream->error = error;
  return STREAM_ENDED;
}

static enum stream_state source_is_empty(struct stream *stream) {
  return stream->is_draining ? end(stream, 0) : STREAM_WAITS_FOR_SOURCE;
}

/* Finds out which side returned EAGAIN, which splice(2) does not tell. */
static enum stream_state blocked_side(struct stream *stream) {
  struct pollfd source = {.fd = stream->source, .events = POLLIN};
  return poll(&source, 1, 0) == 1 ? STREAM_WAITS_FOR_TARGET : source_is_empty(stream);
}

static enum stream_state splice_once(struct stream *stream) {
  size_t length = allowed(stream, SPLICE_BYTES);
  ssize_t moved = splice(stream->source, NULL, stream->target, NULL, length, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
  if (moved > 0) {
    count_taken(stream, (size_t)moved);
    stream->moved_bytes += (uint64_t)moved;
    return STREAM_HAS_MORE;
  }
  if (moved == 0) return end(stream, 0);
  if (errno == EINTR) return STREAM_HAS_MORE;
  if (errno == EAGAIN) return blocked_side(stream);
  if (errno != EINVAL) return end(stream, errno);
  stream->can_splice = false;
  return STREAM_HAS_MORE;
}

static enum stream_state write_unsent(struct stream *stream) {
  ssize_t written = write(stream->target, stream->unsent + stream->unsent_offset, stream->unsent_length);
  if (written == -1) {
    if (errno == EAGAIN) return STREAM_WAITS_FOR_TARGET;
    return errno == EINTR ? STREAM_HAS_MORE : end(stream, errno);
  }
  stream->moved_bytes += (uint64_t)written;
  stream->unsent_offset += (size_t)written;
  stream->unsent_length -= (size_t)written;
  if (stream->unsent_length > 0) return STREAM_WAITS_FOR_TARGET;
  free(stream->unsent);
  stream->unsent = NULL;
  return STREAM_HAS_MORE;
}

static enum stream_state keep_unsent(struct stream *stream, const char *bytes, size_t length) {
  stream->unsent = malloc(length);
  if (stream->unsent == NULL) return end(stream, ENOMEM);
  memcpy(stream->unsent, bytes, length);
  stream->unsent_offset = 0;
  stream->unsent_length = length;
  return STREAM_WAITS_FOR_TARGET;
}

static enum stream_state copy_once(struct stream *stream, char *scratch, size_t scratch_bytes) {
  ssize_t length = read(stream->source, scratch, allowed(stream, scratch_bytes));
  if (length == -1) {
    if (errno == EAGAIN) return source_is_empty(stream);
    /* The master of a pty returns EIO once no process has the other side open. */
    return errno == EINTR ? STREAM_HAS_MORE : end(stream, errno == EIO ? 0 : errno);
  }
  if (length == 0) return end(stream, 0);
  count_taken(stream, (size_t)length);
  ssize_t written = write(stream->target, scratch, (size_t)length);
  if (written == -1) {
    if (errno != EAGAIN && errno != EINTR) return end(stream, errno);
    written = 0;
  }
  stream->moved_bytes += (uint64_t)written;
  if (written == length) return STREAM_HAS_MORE;
  return keep_unsent(stream, scratch + written, (size_t)(length - written));
}

enum stream_state stream_move(struct stream *stream, char *scratch, size_t scratch_bytes) {
  enum stream_state state = STREAM_HAS_MORE;
  for (int call = 0; call < CALLS_PER_MOVE && state == STREAM_HAS_MORE; call++) {
    if (stream->unsent != NULL)
      state = write_unsent(stream);
    else if (stream->is_draining && stream->rest_bytes == 0)
      state = end(stream, 0);
    else if (stream->can_splice)
      state = splice_once(stream);
    else
      state = copy_once(stream, scratch, scratch_bytes);
  }
  return state;
}
