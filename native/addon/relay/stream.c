/*
 * splice(2) moves bytes from a pipe straight to the target, from a socket or pty through a pipe that outlives the
 * agent. A stream reads nothing while that pipe holds bytes, so that back-pressure reaches the source.
 */
#define _GNU_SOURCE
#include "stream.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kept.h"

/* The default of fs.pipe-max-size (man 7 pipe): one call empties a pipe. */
#define SPLICE_BYTES (1024 * 1024)
#define CALLS_PER_MOVE 16
/* How many bytes an input that resumes takes before it tells the host, unless it is idle. */
#define TOLD_BYTES (64 * 1024)
/* The most that a drain moves from a pty or socket, whose buffers hold less. */
#define DRAIN_BYTES (1024 * 1024)

static int make_non_blocking(int fd) {
  int flags = fcntl(fd, F_GETFL);
  return flags == -1 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) == -1 ? -errno : 0;
}

/* Returns 0, or -errno: EINVAL for a descriptor without readiness, such as a regular file. */
static int check_pollable(int fd) {
  struct stat status;
  if (fstat(fd, &status) != 0) return -errno;
  return S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode) || S_ISCHR(status.st_mode) ? 0 : -EINVAL;
}

static int prepare(int fd) {
  int result = check_pollable(fd);
  return result == 0 ? make_non_blocking(fd) : result;
}

static bool is_socket(int fd) {
  struct stat status;
  return fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode);
}

int stream_open(struct stream *stream, int source, int target, int through) {
  int result = source == -1 ? 0 : prepare(source);
  if (result == 0 && target != -1) result = prepare(target);
  int held = 0;
  if (result == 0 && through >= 0 && ioctl(through, FIONREAD, &held) != 0) result = -errno;
  if (result != 0) return result;
  memset(stream, 0, sizeof *stream);
  stream->source = source;
  stream->target = target;
  stream->through = through;
  stream->held_bytes = (size_t)held;
  stream->is_input = source == -1 || is_socket(source);
  stream->kept = -1;
  stream->told = UINT64_MAX;
  return 0;
}

/* The page of a file that holds an offset. */
static size_t page_start(off_t offset) {
  return (size_t)offset & ~((size_t)sysconf(_SC_PAGESIZE) - 1);
}

int stream_count(struct stream *stream, int file, off_t offset, bool resumes_output) {
  size_t start = page_start(offset);
  size_t before = (size_t)offset - start;
  char *page = mmap(NULL, before + sizeof *stream->totals, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)start);
  if (page == MAP_FAILED) return -errno;
  struct totals *totals = (struct totals *)(void *)(page + before);
  stream->totals = totals;
  if (resumes_output) return 0;
  if (totals->is_flushing != 0)
    totals->delivered = totals->received - stream->held_bytes;
  else
    totals->received = totals->delivered + stream->held_bytes;
  totals->is_flushing = 0;
  return 0;
}

bool stream_lost_device(const struct stream *stream) {
  if (!stream->outlives_device || stream->error == 0 || stream->error == ECANCELED) return false;
  /* Just before its sockets are reset, a removed device refuses bytes. A unix socket in its place tells the reset once. */
  if (stream->error == ENODEV || stream->error == ENOTCONN || stream->error == ECONNRESET) return true;
  struct pollfd connection = {.fd = stream->is_input ? stream->source : stream->target};
  return connection.fd != -1 && poll(&connection, 1, 0) == 1 && (connection.revents & POLLERR) != 0;
}

/* shutdown(2) ends the connection even if another process has the socket open. */
static void close_side(const struct stream *stream, int fd) {
  if (stream->shuts_down) shutdown(fd, SHUT_RDWR);
  close(fd);
}

/*
 * Without shutdown(2), which a terminal's other stream on the connection would take for the host's end. The connection
 * ends once nothing holds it any more.
 */
void stream_detach(struct stream *stream) {
  int *connection = stream->is_input ? &stream->source : &stream->target;
  close(*connection);
  *connection = -1;
  if (stream->kept != -1) kept_detach(stream);
  stream->error = 0;
  stream->is_stopping = false;
}

int stream_attach(struct stream *stream, int connection) {
  int result = prepare(connection);
  if (result == 0) *(stream->is_input ? &stream->source : &stream->target) = connection;
  if (result == 0 && stream->kept != -1) kept_attach(stream);
  return result;
}

void stream_close(struct stream *stream) {
  if (stream->tail != NULL) tail_end(stream->tail);
  if (stream->source != -1) close_side(stream, stream->source);
  if (stream->target != -1) close_side(stream, stream->target);
  if (stream->through >= 0) close(stream->through);
  if (stream->kept != -1) kept_close(stream);
  stream_forget_totals(stream);
}

void stream_forget_totals(struct stream *stream) {
  if (stream->totals == NULL) return;
  size_t before = (size_t)(uintptr_t)stream->totals & ((size_t)sysconf(_SC_PAGESIZE) - 1);
  munmap((char *)stream->totals - before, before + sizeof *stream->totals);
  stream->totals = NULL;
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

static size_t allowed(const struct stream *stream, size_t most) {
  return stream->is_draining && stream->rest_bytes < most ? stream->rest_bytes : most;
}

static void count_taken(struct stream *stream, size_t bytes) {
  if (stream->is_draining) stream->rest_bytes -= bytes;
}

static void count_moved(struct stream *stream, uint64_t bytes) {
  stream->moved_bytes += bytes;
  if (stream->totals == NULL) return;
  stream->totals->delivered += bytes;
  if (stream->through < 0) stream->totals->received = stream->totals->delivered;
}

static enum stream_state end(struct stream *stream, int error) {
  stream->error = error;
  return STREAM_ENDED;
}

static enum stream_state source_is_empty(struct stream *stream) {
  return stream->is_draining ? end(stream, 0) : STREAM_WAITS_FOR_SOURCE;
}

/* splice(2) does not tell which side returned EAGAIN. */
static enum stream_state blocked_side(struct stream *stream) {
  struct pollfd source = {.fd = stream->source, .events = POLLIN};
  return poll(&source, 1, 0) == 1 ? STREAM_WAITS_FOR_TARGET : source_is_empty(stream);
}

static ssize_t splice_some(int source, int target, size_t length) {
  return splice(source, NULL, target, NULL, length, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
}

/* Sets `*is_full` when the target took fewer bytes than it was offered. */
static ssize_t deliver(const struct stream *stream, int pipe, size_t length, bool *is_full) {
  *is_full = false;
  if (stream->tail == NULL) return splice_some(pipe, stream->target, length);
  return tail_splice(stream->tail, stream->target, length, is_full);
}

static enum stream_state move_directly(struct stream *stream) {
  bool is_full;
  ssize_t moved = deliver(stream, stream->source, allowed(stream, SPLICE_BYTES), &is_full);
  if (moved > 0) {
    count_taken(stream, (size_t)moved);
    count_moved(stream, (uint64_t)moved);
    return is_full ? STREAM_WAITS_FOR_TARGET : STREAM_HAS_MORE;
  }
  if (moved == 0) return end(stream, 0);
  if (errno == EAGAIN) return blocked_side(stream);
  return errno == EINTR ? STREAM_HAS_MORE : end(stream, errno);
}

/* The pipe `through` is empty, so only the source can block. */
static enum stream_state fill(struct stream *stream) {
  ssize_t moved = splice_some(stream->source, stream->through, allowed(stream, SPLICE_BYTES));
  if (moved > 0) {
    count_taken(stream, (size_t)moved);
    stream->held_bytes += (size_t)moved;
    if (stream->totals != NULL) stream->totals->received += (uint64_t)moved;
    return STREAM_HAS_MORE;
  }
  if (moved == 0) return end(stream, 0);
  if (errno == EAGAIN) return source_is_empty(stream);
  /* The master of a pty returns EIO once no process has the other side open. */
  return errno == EINTR ? STREAM_HAS_MORE : end(stream, errno == EIO ? 0 : errno);
}

static enum stream_state flush(struct stream *stream) {
  bool is_full;
  if (stream->totals != NULL) stream->totals->is_flushing = 1;
  ssize_t moved = deliver(stream, stream->through, stream->held_bytes, &is_full);
  int error = errno;
  if (moved > 0) stream->held_bytes -= (size_t)moved;
  if (moved > 0) count_moved(stream, (uint64_t)moved);
  if (stream->totals != NULL) stream->totals->is_flushing = 0;
  errno = error;
  if (moved >= 0) {
    return is_full ? STREAM_WAITS_FOR_TARGET : STREAM_HAS_MORE;
  }
  if (errno == EAGAIN) return STREAM_WAITS_FOR_TARGET;
  return errno == EINTR ? STREAM_HAS_MORE : end(stream, errno);
}

static enum stream_state move_bytes(struct stream *stream) {
  enum stream_state state = STREAM_HAS_MORE;
  for (int call = 0; call < CALLS_PER_MOVE && state == STREAM_HAS_MORE; call++) {
    if (stream->target == -1)
      state = STREAM_WAITS_FOR_CONNECTION;
    else if (stream->source == -1 && stream->held_bytes == 0)
      state = stream->is_draining ? end(stream, 0) : STREAM_WAITS_FOR_CONNECTION;
    else if (stream->held_bytes > 0)
      state = flush(stream);
    else if (stream->is_draining && stream->rest_bytes == 0)
      state = end(stream, 0);
    else
      state = stream->through >= 0 ? fill(stream) : move_directly(stream);
  }
  return state;
}

/* Returns 0 or an errno. A total is small beside any buffer, and so is sent whole or not at all. */
static int tell_total(struct stream *stream) {
  uint64_t received = stream->totals->received;
  uint64_t total = htole64(received);
  ssize_t sent = send(stream->source, &total, sizeof total, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent == -1) return errno;
  if (sent != sizeof total) return EPROTO;
  stream->told = received;
  return 0;
}

uint32_t stream_source_events(const struct stream *stream) {
  if (stream->is_input) return EPOLLIN | EPOLLOUT;
  return kept_has_room(stream) && !stream->has_ended && !stream->is_stopping ? EPOLLIN : 0;
}

uint32_t stream_target_events(const struct stream *stream) {
  if (stream->is_input) return 0;
  /* A full connection brings totals while it empties: one event for several of them. */
  return stream->sent_bytes > 0 ? EPOLLOUT : EPOLLIN;
}

bool stream_stop(struct stream *stream) {
  if (stream->kept == -1 || stream->is_stopping || kept_is_settled(stream)) {
    if (stream->is_input && stream->resumes) tell_total(stream);
    return true;
  }
  stream->is_stopping = true;
  return false;
}

static enum stream_state move_input(struct stream *stream) {
  enum stream_state state = move_bytes(stream);
  if (state == STREAM_ENDED || stream->source == -1) return state;
  uint64_t untold = stream->totals->received - stream->told;
  bool is_idle = state == STREAM_WAITS_FOR_SOURCE;
  if (stream->told == UINT64_MAX || untold >= TOLD_BYTES || (is_idle && untold > 0)) {
    int error = tell_total(stream);
    if (error != 0 && error != EAGAIN) return end(stream, error);
    if (error == EAGAIN && is_idle) return STREAM_WAITS_FOR_EITHER;
  }
  return state;
}

enum stream_state stream_move(struct stream *stream) {
  if (stream->kept != -1) return kept_move(stream);
  return stream->is_input && stream->resumes ? move_input(stream) : move_bytes(stream);
}
