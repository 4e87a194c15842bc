/*
 * Bytes that leave the stream's pipe while it holds `capacity` others are not copied. The rest is copied by tee(2)
 * before splice(2) moves it, so that an agent that is killed loses and repeats nothing.
 */
#define _GNU_SOURCE
#include "tail.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

/* The size of the tap's pipe. A pipe counts pages, and small writes use a page each. */
#define TAP_BYTES (256 * 1024)

struct tail {
  pthread_mutex_t lock;
  struct tap *tap;
  int pipe; /* the stream's source; -1 after its end */
  size_t capacity;
  size_t held;    /* bytes in the ring, which end at `total` */
  uint64_t total; /* bytes that have left the pipe; byte n is at n % capacity */
  char bytes[];
};

/* Only the relay thread uses its pipe, which is empty between two moves. */
struct tap {
  int reading;
  int writing;
  int nowhere;
};

static size_t smaller(size_t one, size_t other) {
  return one < other ? one : other;
}

static void close_pipe(int *reading, int *writing) {
  if (*reading == -1) return;
  close(*reading);
  close(*writing);
  *reading = *writing = -1;
}

/* A failure of F_SETPIPE_SZ only makes each copy smaller. */
static bool open_pipe(int *reading, int *writing, int bytes) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return false;
  *reading = ends[0];
  *writing = ends[1];
  (void)fcntl(*writing, F_SETPIPE_SZ, bytes);
  return true;
}

struct tap *tap_open(void) {
  struct tap *tap = malloc(sizeof *tap);
  if (tap == NULL) return NULL;
  *tap = (struct tap){.reading = -1, .writing = -1};
  tap->nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (tap->nowhere != -1 && open_pipe(&tap->reading, &tap->writing, TAP_BYTES)) return tap;
  int error = errno;
  tap_close(tap);
  errno = error;
  return NULL;
}

void tap_close(struct tap *tap) {
  if (tap == NULL) return;
  close_pipe(&tap->reading, &tap->writing);
  if (tap->nowhere != -1) close(tap->nowhere);
  free(tap);
}

struct tail *tail_new(struct tap *tap, int pipe, size_t capacity) {
  struct tail *tail = malloc(sizeof *tail + capacity);
  if (tail == NULL) return NULL;
  *tail = (struct tail){.tap = tap, .pipe = pipe, .capacity = capacity};
  pthread_mutex_init(&tail->lock, NULL);
  return tail;
}

size_t tail_capacity(const struct tail *tail) {
  return tail->capacity;
}

static bool drop(const struct tap *tap, int pipe, size_t length) {
  while (length > 0) {
    ssize_t dropped = splice(pipe, NULL, tap->nowhere, NULL, length, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (dropped <= 0) return false;
    length -= (size_t)dropped;
  }
  return true;
}

/* Where `length` bytes from `offset` on are in the ring, which may wrap. */
static void place(struct tail *tail, uint64_t offset, size_t length, struct iovec parts[2]) {
  size_t start = (size_t)(offset % tail->capacity);
  size_t first = smaller(length, tail->capacity - start);
  parts[0] = (struct iovec){.iov_base = tail->bytes + start, .iov_len = first};
  parts[1] = (struct iovec){.iov_base = tail->bytes, .iov_len = length - first};
}

static void skip(struct tail *tail, size_t length) {
  tail->total += length;
  tail->held = 0;
}

/* Reads `length` bytes of a pipe into the ring. On failure only counts them, and returns false. */
static bool take(struct tail *tail, int pipe, size_t length) {
  size_t last = smaller(length, tail->capacity);
  struct iovec parts[2];
  place(tail, tail->total + (length - last), last, parts);
  if (!drop(tail->tap, pipe, length - last) || readv(pipe, parts, 2) != (ssize_t)last) {
    skip(tail, length);
    return false;
  }
  tail->total += length;
  tail->held = smaller(tail->held + length, tail->capacity);
  return true;
}

/* Copies the stream's pipe into `copy`, a pipe that is open if the result is above 0. */
static size_t copy_waiting(const struct tail *tail, int copy[2]) {
  int waiting;
  copy[0] = copy[1] = -1;
  if (tail->pipe == -1 || ioctl(tail->pipe, FIONREAD, &waiting) != 0 || waiting == 0) return 0;
  if (!open_pipe(&copy[0], &copy[1], fcntl(tail->pipe, F_GETPIPE_SZ))) return 0;
  ssize_t copied = tee(tail->pipe, copy[1], (size_t)waiting, SPLICE_F_NONBLOCK);
  if (copied > 0) return (size_t)copied;
  close_pipe(&copy[0], &copy[1]);
  return 0;
}

static size_t read_all(struct tail *tail, char *bytes, uint64_t *passed) {
  int copy[2];
  size_t waiting = copy_waiting(tail, copy);
  size_t last = smaller(waiting, tail->capacity);
  size_t held = smaller(tail->held, tail->capacity - last);
  struct iovec parts[2];
  place(tail, tail->total - held, held, parts);
  memcpy(bytes, parts[0].iov_base, parts[0].iov_len);
  memcpy(bytes + parts[0].iov_len, parts[1].iov_base, parts[1].iov_len);
  bool is_read =
      drop(tail->tap, copy[0], waiting - last) && (last == 0 || read(copy[0], bytes + held, last) == (ssize_t)last);
  close_pipe(&copy[0], &copy[1]);
  *passed = tail->total + (is_read ? waiting : 0);
  return held + (is_read ? last : 0);
}

size_t tail_read(struct tail *tail, char *bytes, uint64_t *total) {
  pthread_mutex_lock(&tail->lock);
  size_t length = read_all(tail, bytes, total);
  pthread_mutex_unlock(&tail->lock);
  return length;
}

void tail_end(struct tail *tail) {
  int copy[2];
  pthread_mutex_lock(&tail->lock);
  size_t waiting = copy_waiting(tail, copy);
  if (waiting > 0) take(tail, copy[0], waiting);
  close_pipe(&copy[0], &copy[1]);
  tail->pipe = -1;
  pthread_mutex_unlock(&tail->lock);
}

void tail_free(struct tail *tail) {
  if (tail == NULL) return;
  pthread_mutex_destroy(&tail->lock);
  free(tail);
}

static ssize_t splice_some(int source, int target, size_t length) {
  return splice(source, NULL, target, NULL, length, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
}

static ssize_t move_uncopied(struct tail *tail, int target, size_t length, bool *is_full) {
  ssize_t moved = splice_some(tail->pipe, target, length);
  if (moved <= 0) return moved;
  *is_full = (size_t)moved < length;
  skip(tail, (size_t)moved);
  return moved;
}

/* Moves at most `copied` bytes, of which the tap has copies, and empties the tap. */
static ssize_t move_copied(struct tail *tail, int target, size_t copied, bool *is_full) {
  struct tap *tap = tail->tap;
  ssize_t moved = splice_some(tail->pipe, target, copied);
  int error = errno;
  size_t count = moved > 0 ? (size_t)moved : 0;
  *is_full = count > 0 && count < copied;
  if (!take(tail, tap->reading, count) || !drop(tap, tap->reading, copied - count)) {
    close_pipe(&tap->reading, &tap->writing);
    (void)open_pipe(&tap->reading, &tap->writing, TAP_BYTES);
  }
  errno = error;
  return moved;
}

static ssize_t move(struct tail *tail, int target, size_t length, bool *is_full) {
  int waiting;
  if (ioctl(tail->pipe, FIONREAD, &waiting) != 0) return -1;
  size_t rest = (size_t)waiting;
  if (rest > tail->capacity) return move_uncopied(tail, target, smaller(length, rest - tail->capacity), is_full);
  ssize_t copied = tee(tail->pipe, tail->tap->writing, smaller(length, TAP_BYTES), SPLICE_F_NONBLOCK);
  if (copied > 0) return move_copied(tail, target, (size_t)copied, is_full);
  if (copied == -1 && errno == EAGAIN) return -1;
  /* EOF, or bytes that tee(2) cannot copy. */
  return move_uncopied(tail, target, length, is_full);
}

ssize_t tail_splice(struct tail *tail, int target, size_t length, bool *is_full) {
  pthread_mutex_lock(&tail->lock);
  ssize_t moved = move(tail, target, length, is_full);
  int error = errno;
  pthread_mutex_unlock(&tail->lock);
  errno = error;
  return moved;
}
