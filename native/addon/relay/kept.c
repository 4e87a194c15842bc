/*
 * An output whose reader acknowledges totals. It passes a file in memory: splice(2) into it and sendfile(2) out of it move
 * bytes and the position of an open file in one call, so a kill loses and repeats none. A total is taken from the
 * connection only once it is noted.
 */
#define _GNU_SOURCE
#include "kept.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tail.h"

#define PUNCHED_BYTES (64 * 1024)
#define CALLS_PER_MOVE 16
#define TOTALS_PER_CALL 64

static enum stream_state end(struct stream *stream, int error) {
  stream->error = error;
  return STREAM_ENDED;
}

/* Frees whole pages only: the rest of a page may still be on its way. */
static void punch(struct stream *stream) {
  uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  const struct totals *totals = stream->totals;
  /* A reader may have more than what this connection has brought. */
  uint64_t last = totals->acknowledged < totals->delivered ? totals->acknowledged : totals->delivered;
  uint64_t until = last & ~(page - 1);
  if (until < stream->punched + PUNCHED_BYTES) return;
  fallocate(stream->kept, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)stream->punched,
            (off_t)(until - stream->punched));
  stream->punched = until;
}

/* A part of a total, which stays in the socket, does not wake the thread again and again (vsock, TCP; not AF_UNIX). */
static void wait_for_whole_totals(int connection) {
  const int bytes = sizeof(uint64_t);
  if (connection != -1) setsockopt(connection, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
}

int kept_open(struct stream *stream, int file, int sent) {
  off_t received = lseek(file, 0, SEEK_CUR);
  off_t delivered = lseek(sent, 0, SEEK_CUR);
  if (received == -1 || delivered == -1) return -errno;
  if (stream->totals == NULL) return -EINVAL;
  stream->kept = file;
  stream->sent = sent;
  stream->totals->received = (uint64_t)received;
  stream->totals->delivered = (uint64_t)delivered;
  if (stream->totals->sent_once < (uint64_t)delivered) stream->totals->sent_once = (uint64_t)delivered;
  punch(stream);
  wait_for_whole_totals(stream->target);
  return 0;
}

void kept_attach(struct stream *stream) {
  wait_for_whole_totals(stream->target);
  stream->totals->delivered = (uint64_t)lseek(stream->sent, 0, SEEK_CUR);
}

bool kept_is_settled(const struct stream *stream) {
  const struct totals *totals = stream->totals;
  return totals->delivered == totals->received && totals->acknowledged == totals->received;
}

static bool has_host_ended(int connection) {
  struct pollfd ended = {.fd = connection, .events = POLLRDHUP};
  return poll(&ended, 1, 0) == 1;
}

/* Returns 0 or the errno with which the stream ends. */
static int take_totals(struct stream *stream) {
  uint64_t totals[TOTALS_PER_CALL];
  for (;;) {
    ssize_t count = recv(stream->target, totals, sizeof totals, MSG_PEEK | MSG_DONTWAIT);
    if (count == 0) return EPIPE;
    if (count == -1 && errno == EINTR) continue;
    if (count == -1) return errno == EAGAIN ? 0 : errno;
    size_t whole = (size_t)count / sizeof totals[0];
    if (whole == 0) return has_host_ended(stream->target) ? EPIPE : 0;
    uint64_t total = le64toh(totals[whole - 1]);
    if (total > stream->totals->sent_once) return EPROTO;
    if (total > stream->totals->acknowledged) stream->totals->acknowledged = total;
    if (recv(stream->target, totals, whole * sizeof totals[0], MSG_DONTWAIT) == -1) return errno;
    punch(stream);
    if (whole < TOTALS_PER_CALL) return 0;
  }
}

static size_t room(const struct stream *stream) {
  return KEPT_BYTES - (size_t)(stream->totals->received - stream->totals->acknowledged);
}

static ssize_t keep_some(const struct stream *stream, int pipe, size_t length) {
  bool is_full;
  if (stream->tail != NULL) return tail_splice(stream->tail, stream->kept, length, &is_full);
  return splice(pipe, NULL, stream->kept, NULL, length, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
}

static size_t smaller(size_t one, size_t other) {
  return one < other ? one : other;
}

/* One call that moves bytes of the source. Returns what it moved, 0 when there is nothing, or -errno. */
static ssize_t fill(struct stream *stream) {
  size_t most = room(stream);
  if (stream->is_draining && stream->rest_bytes == 0 && stream->held_bytes == 0) stream->has_ended = true;
  if (stream->is_stopping || most == 0) return 0;
  if (stream->held_bytes > 0) {
    ssize_t moved = keep_some(stream, stream->through, smaller(most, stream->held_bytes));
    if (moved <= 0) return moved == 0 || errno == EAGAIN ? 0 : -errno;
    stream->held_bytes -= (size_t)moved;
    stream->totals->received += (uint64_t)moved;
    return moved;
  }
  if (stream->has_ended) return 0;
  if (stream->is_draining) most = smaller(most, stream->rest_bytes);
  ssize_t moved = stream->through >= 0
                      ? splice(stream->source, NULL, stream->through, NULL, most, SPLICE_F_MOVE | SPLICE_F_NONBLOCK)
                      : keep_some(stream, stream->source, most);
  if (moved > 0) {
    if (stream->is_draining) stream->rest_bytes -= (size_t)moved;
    if (stream->through >= 0)
      stream->held_bytes += (size_t)moved;
    else
      stream->totals->received += (uint64_t)moved;
    return moved;
  }
  if (moved == -1 && errno == EINTR) return 1;
  if (moved == -1 && errno == EAGAIN) {
    stream->has_ended = stream->is_draining;
    return 0;
  }
  /* The master of a pty returns EIO once no process has the other side open. */
  if (moved == -1 && errno != EIO) return -errno;
  stream->has_ended = true;
  return 0;
}

static ssize_t send_some(struct stream *stream) {
  struct totals *totals = stream->totals;
  if (stream->target == -1 || totals->delivered == totals->received) return 0;
  ssize_t sent = sendfile(stream->target, stream->sent, NULL, (size_t)(totals->received - totals->delivered));
  if (sent == -1) return errno == EAGAIN || errno == EINTR ? 0 : -errno;
  totals->delivered += (uint64_t)sent;
  if (totals->delivered > totals->sent_once) totals->sent_once = totals->delivered;
  stream->moved_bytes += (uint64_t)sent;
  return sent;
}

enum stream_state kept_move(struct stream *stream) {
  for (int call = 0;; call++) {
    int error = stream->target == -1 ? 0 : take_totals(stream);
    if (error != 0) return end(stream, error);
    ssize_t filled = fill(stream);
    if (filled < 0) return end(stream, (int)-filled);
    ssize_t sent = send_some(stream);
    if (sent < 0) return end(stream, (int)-sent);
    if (stream->has_ended && stream->held_bytes == 0 && kept_is_settled(stream)) return end(stream, 0);
    if (filled == 0 && sent == 0) break;
    /* Without a connection nothing but the file's room ends the loop: no event would go on with it. */
    if (call >= CALLS_PER_MOVE - 1 && stream->target != -1) return STREAM_HAS_MORE;
  }
  return STREAM_WAITS_FOR_EITHER;
}

void kept_close(const struct stream *stream) {
  close(stream->kept);
  close(stream->sent);
}
