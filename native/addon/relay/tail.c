/*
 * tee(2) copies what a pipe holds into the tap, before splice(2) moves it. So the kernel still moves the bytes themselves
 * in one call, and an agent that is killed loses and repeats none.
 */
#define _GNU_SOURCE
#include "tail.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* How much one call copies at most. What the target does not take is copied again, so this is near what a socket takes. */
#define TAP_BYTES (256 * 1024)

struct tail {
  pthread_mutex_t lock;
  size_t capacity;
  size_t held;    /* of the bytes before `total` */
  uint64_t total; /* the byte at offset n is at n modulo the capacity */
  char bytes[];
};

struct tap {
  int reading; /* -1 when the pipe could not be opened again */
  int writing;
  int nowhere; /* /dev/null */
};

struct tail *tail_new(size_t capacity) {
  struct tail *tail = malloc(sizeof *tail + capacity);
  if (tail == NULL) return NULL;
  pthread_mutex_init(&tail->lock, NULL);
  tail->capacity = capacity;
  tail->held = 0;
  tail->total = 0;
  return tail;
}

void tail_free(struct tail *tail) {
  if (tail == NULL) return;
  pthread_mutex_destroy(&tail->lock);
  free(tail);
}

size_t tail_capacity(const struct tail *tail) {
  return tail->capacity;
}

/* The place of `length` bytes from an offset on: to the ring's end, and on from its beginning. */
static void place(struct tail *tail, uint64_t offset, size_t length, struct iovec parts[2]) {
  size_t start = (size_t)(offset % tail->capacity);
  size_t until_end = tail->capacity - start;
  size_t first = length < until_end ? length : until_end;
  parts[0] = (struct iovec){.iov_base = tail->bytes + start, .iov_len = first};
  parts[1] = (struct iovec){.iov_base = tail->bytes, .iov_len = length - first};
}

size_t tail_read(struct tail *tail, char *bytes, uint64_t *total) {
  struct iovec parts[2];
  pthread_mutex_lock(&tail->lock);
  size_t held = tail->held;
  *total = tail->total;
  place(tail, tail->total - held, held, parts);
  memcpy(bytes, parts[0].iov_base, parts[0].iov_len);
  memcpy(bytes + parts[0].iov_len, parts[1].iov_base, parts[1].iov_len);
  pthread_mutex_unlock(&tail->lock);
  return held;
}

/* Counts bytes that were moved without a copy. */
static void skip(struct tail *tail, size_t moved) {
  pthread_mutex_lock(&tail->lock);
  tail->total += moved;
  tail->held = 0;
  pthread_mutex_unlock(&tail->lock);
}

/* Returns false when bytes are left in the tap: the tail of another stream must not get them. */
static bool drop(const struct tap *tap, size_t length) {
  while (length > 0) {
    ssize_t dropped = splice(tap->reading, NULL, tap->nowhere, NULL, length, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (dropped <= 0) return false;
    length -= (size_t)dropped;
  }
  return true;
}

/* Adds the next bytes of the tap, which has them. Returns false when it cannot: nothing is held then. */
static bool take(struct tail *tail, const struct tap *tap, size_t moved) {
  size_t last = moved < tail->capacity ? moved : tail->capacity;
  if (!drop(tap, moved - last)) return false;
  struct iovec parts[2];
  pthread_mutex_lock(&tail->lock);
  place(tail, tail->total + (moved - last), last, parts);
  bool is_taken = readv(tap->reading, parts, 2) == (ssize_t)last;
  if (is_taken) {
    size_t held = tail->held + moved;
    tail->total += moved;
    tail->held = held < tail->capacity ? held : tail->capacity;
  }
  pthread_mutex_unlock(&tail->lock);
  return is_taken;
}

static void close_pipe(struct tap *tap) {
  if (tap->reading == -1) return;
  close(tap->reading);
  close(tap->writing);
  tap->reading = tap->writing = -1;
}

static int open_pipe(struct tap *tap) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return -1;
  tap->reading = ends[0];
  tap->writing = ends[1];
  /* A smaller one copies less at a time. */
  (void)fcntl(tap->writing, F_SETPIPE_SZ, TAP_BYTES);
  return 0;
}

struct tap *tap_open(void) {
  struct tap *tap = malloc(sizeof *tap);
  if (tap == NULL) return NULL;
  tap->reading = tap->writing = -1;
  tap->nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (tap->nowhere != -1 && open_pipe(tap) == 0) return tap;
  int error = errno;
  tap_close(tap);
  errno = error;
  return NULL;
}

void tap_close(struct tap *tap) {
  if (tap == NULL) return;
  close_pipe(tap);
  if (tap->nowhere != -1) close(tap->nowhere);
  free(tap);
}

static void reopen(struct tap *tap) {
  close_pipe(tap);
  (void)open_pipe(tap);
}

static ssize_t splice_some(int source, int target, size_t length) {
  return splice(source, NULL, target, NULL, length, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
}

ssize_t tap_splice(struct tap *tap, struct tail *tail, int pipe, int target, size_t length, bool *is_full) {
  ssize_t copied = tee(pipe, tap->writing, length < TAP_BYTES ? length : TAP_BYTES, SPLICE_F_NONBLOCK);
  if (copied == -1 && errno == EAGAIN) return -1;
  if (copied <= 0) {
    ssize_t moved = splice_some(pipe, target, length);
    if (moved > 0) skip(tail, (size_t)moved);
    return moved;
  }
  ssize_t moved = splice_some(pipe, target, (size_t)copied);
  int error = errno;
  size_t count = moved > 0 ? (size_t)moved : 0;
  *is_full = count > 0 && count < (size_t)copied;
  bool is_taken = count == 0 || take(tail, tap, count);
  if (!is_taken) skip(tail, count);
  if (!is_taken || !drop(tap, (size_t)copied - count)) reopen(tap);
  errno = error;
  return moved;
}
