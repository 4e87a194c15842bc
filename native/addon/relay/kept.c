/*
 * An output whose reader acknowledges totals. Its bytes stay in the pipe `kept` until they are acknowledged. They are sent
 * from the pipe `sent`, which gets references to them by tee(2). What a call has moved can be told by the length of
 * its pipe afterwards, so a kill loses and repeats none. A total is taken from the connection only once it is noted.
 */
#define _GNU_SOURCE
#include "kept.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tail.h"

#define CALLS_PER_MOVE 16
#define TOTALS_PER_CALL 64
/* For `sent_end`: the pipe `sent` has nothing that counts. */
#define NOTHING UINT64_MAX

static enum stream_state end(struct stream *stream, int error) {
  stream->error = error;
  return STREAM_ENDED;
}

static size_t smaller(size_t one, size_t other) {
  return one < other ? one : other;
}

/* Returns how many bytes are gone. */
static size_t forget(const struct stream *stream, int pipe, size_t length) {
  size_t forgotten = 0;
  while (forgotten < length) {
    ssize_t count = splice(pipe, NULL, stream->nowhere, NULL, length - forgotten, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (count == -1 && errno == EINTR) continue;
    if (count <= 0) break;
    forgotten += (size_t)count;
  }
  return forgotten;
}

static void drop_acknowledged(struct stream *stream) {
  struct totals *totals = stream->totals;
  /* A reader may have more than what this connection has brought. */
  uint64_t until = totals->acknowledged < totals->delivered ? totals->acknowledged : totals->delivered;
  if (until <= totals->dropped) return;
  totals->is_dropping = 1;
  totals->dropped += forget(stream, stream->kept, (size_t)(until - totals->dropped));
  totals->is_dropping = 0;
  stream->is_kept_full = false;
}

/* A part of a total, which stays in the socket, does not wake the thread again and again (vsock, TCP; not AF_UNIX). */
static void wait_for_whole_totals(int connection) {
  const int bytes = sizeof(uint64_t);
  if (connection != -1) setsockopt(connection, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
}

void kept_detach(struct stream *stream) {
  int length;
  stream->totals->sent_end = NOTHING;
  stream->sent_bytes = 0;
  if (ioctl(stream->sent, FIONREAD, &length) == 0) forget(stream, stream->sent, (size_t)length);
}

int kept_open(struct stream *stream, int kept, int sent) {
  int kept_bytes, sent_bytes;
  if (stream->totals == NULL) return -EINVAL;
  if (ioctl(kept, FIONREAD, &kept_bytes) != 0 || ioctl(sent, FIONREAD, &sent_bytes) != 0) return -errno;
  stream->nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (stream->nowhere == -1) return -errno;
  stream->kept = kept;
  stream->sent = sent;
  struct totals *totals = stream->totals;
  if (totals->is_dropping != 0)
    totals->dropped = totals->received - (uint64_t)kept_bytes;
  else
    totals->received = totals->dropped + (uint64_t)kept_bytes;
  totals->is_dropping = 0;
  if (totals->sent_end != NOTHING) totals->delivered = totals->sent_end - (uint64_t)sent_bytes;
  if (totals->sent_once < totals->delivered) totals->sent_once = totals->delivered;
  kept_detach(stream);
  drop_acknowledged(stream);
  wait_for_whole_totals(stream->target);
  return 0;
}

void kept_attach(const struct stream *stream) {
  wait_for_whole_totals(stream->target);
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
    if (whole < TOTALS_PER_CALL) return 0;
  }
}

static size_t room(const struct stream *stream) {
  return stream->is_kept_full ? 0 : KEPT_BYTES - (size_t)(stream->totals->received - stream->totals->dropped);
}

bool kept_has_room(const struct stream *stream) {
  return room(stream) > 0;
}

static ssize_t keep_some(const struct stream *stream, int pipe, size_t length) {
  bool is_full;
  if (stream->tail != NULL) return tail_splice(stream->tail, stream->kept, length, &is_full);
  return splice(pipe, NULL, stream->kept, NULL, length, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
}

/* A pipe has a number of places, and a few bytes take one. The source is not asked: it may have bytes by now. */
static bool is_kept_full(struct stream *stream) {
  struct pollfd kept = {.fd = stream->kept, .events = POLLOUT};
  stream->is_kept_full = poll(&kept, 1, 0) == 0;
  return stream->is_kept_full;
}

/* One call that moves bytes of the source. Returns what it moved, 0 when there is nothing, or -errno. */
static ssize_t fill(struct stream *stream) {
  size_t most = room(stream);
  if (stream->is_draining && stream->rest_bytes == 0 && stream->held_bytes == 0) stream->has_ended = true;
  if (stream->is_stopping || most == 0) return 0;
  if (stream->held_bytes > 0) {
    ssize_t moved = keep_some(stream, stream->through, smaller(most, stream->held_bytes));
    if (moved == -1 && errno == EINTR) return 1;
    if (moved == -1 && errno == EAGAIN) stream->is_kept_full = true;
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
    stream->has_ended = (stream->through >= 0 || !is_kept_full(stream)) && stream->is_draining;
    return 0;
  }
  /* The master of a pty returns EIO once no process has the other side open. */
  if (moved == -1 && errno != EIO) return -errno;
  stream->has_ended = true;
  return 0;
}

/* Returns how many bytes wait to be sent, or -errno. */
static ssize_t offer(struct stream *stream) {
  struct totals *totals = stream->totals;
  if (stream->sent_bytes > 0) return (ssize_t)stream->sent_bytes;
  totals->sent_end = NOTHING;
  ssize_t offered = tee(stream->kept, stream->sent, KEPT_BYTES, SPLICE_F_NONBLOCK);
  if (offered == -1) return errno == EAGAIN || errno == EINTR ? 0 : -errno;
  size_t before = smaller((size_t)(totals->delivered - totals->dropped), (size_t)offered);
  if (forget(stream, stream->sent, before) < before) return -EIO;
  stream->sent_bytes = (size_t)offered - before;
  if (stream->sent_bytes > 0) totals->sent_end = totals->dropped + (uint64_t)offered;
  return (ssize_t)stream->sent_bytes;
}

static ssize_t send_some(struct stream *stream) {
  struct totals *totals = stream->totals;
  if (stream->target == -1 || totals->delivered == totals->received) return 0;
  ssize_t offered = offer(stream);
  if (offered <= 0) return offered;
  ssize_t sent = splice(stream->sent, NULL, stream->target, NULL, (size_t)offered, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
  if (sent == -1) return errno == EAGAIN || errno == EINTR ? 0 : -errno;
  stream->sent_bytes -= (size_t)sent;
  totals->delivered += (uint64_t)sent;
  if (totals->delivered > totals->sent_once) totals->sent_once = totals->delivered;
  stream->moved_bytes += (uint64_t)sent;
  return sent;
}

enum stream_state kept_move(struct stream *stream) {
  for (int call = 0;; call++) {
    int error = stream->target == -1 ? 0 : take_totals(stream);
    if (error != 0) return end(stream, error);
    drop_acknowledged(stream);
    ssize_t filled = fill(stream);
    if (filled < 0) return end(stream, (int)-filled);
    ssize_t sent = send_some(stream);
    if (sent < 0) return end(stream, (int)-sent);
    if (stream->has_ended && stream->held_bytes == 0 && kept_is_settled(stream)) return end(stream, 0);
    if (filled == 0 && sent == 0) break;
    /* Without a connection nothing but the pipe's room ends the loop: no event would go on with it. */
    if (call >= CALLS_PER_MOVE - 1 && stream->target != -1) return STREAM_HAS_MORE;
  }
  return STREAM_WAITS_FOR_EITHER;
}

void kept_close(const struct stream *stream) {
  close(stream->kept);
  close(stream->sent);
  close(stream->nowhere);
}
