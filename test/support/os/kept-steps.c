/* Takes an output that resumes through the moves of one case, and prints what its readers get, for tests. */
#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "addon/relay/kept.h"

static struct totals totals;
static struct stream output;
static int writing;
static int reading;

/* What is to happen in calls of splice(2), once each. */
static const char *late;      /* is written by the process once its pipe was found empty */
static bool target_is_full;   /* the connection takes nothing */
static int forgets_two_until; /* an errno: two bytes of a pipe are forgotten, then a call fails with it */
static bool has_forgotten_two;

ssize_t __real_splice(int source, loff_t *at, int target, loff_t *to, size_t length, unsigned flags);
ssize_t __wrap_splice(int source, loff_t *at, int target, loff_t *to, size_t length, unsigned flags);

static ssize_t fail(int error) {
  errno = error;
  return -1;
}

static void check(bool is_right, const char *what) {
  if (is_right) return;
  perror(what);
  exit(1);
}

static void write_all(int fd, const void *bytes, size_t length) {
  check(write(fd, bytes, length) == (ssize_t)length, "write");
}

ssize_t __wrap_splice(int source, loff_t *at, int target, loff_t *to, size_t length, unsigned flags) {
  if (target == output.target && target_is_full) return fail(EAGAIN);
  if (target == output.nowhere && forgets_two_until != 0) {
    if (!has_forgotten_two) {
      has_forgotten_two = true;
      return __real_splice(source, at, target, to, 2, flags);
    }
    int error = forgets_two_until;
    forgets_two_until = 0;
    return fail(error);
  }
  ssize_t moved = __real_splice(source, at, target, to, length, flags);
  if (source != output.source || moved != -1 || errno != EAGAIN || late == NULL) return moved;
  write_all(writing, late, strlen(late));
  late = NULL;
  return fail(EAGAIN);
}

static int whole_pipe(void) {
  int ends[2];
  char path[64];
  check(pipe2(ends, O_NONBLOCK) == 0, "pipe2");
  snprintf(path, sizeof path, "/proc/self/fd/%d", ends[0]);
  int whole = open(path, O_RDWR | O_NONBLOCK);
  check(whole != -1 && close(ends[0]) == 0 && close(ends[1]) == 0, path);
  return whole;
}

static int connection(void) {
  int ends[2];
  check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0, "socketpair");
  reading = ends[1];
  return ends[0];
}

static void acknowledge(uint64_t total) {
  uint64_t bytes = htole64(total);
  write_all(reading, &bytes, sizeof bytes);
}

static void print_read(void) {
  char bytes[256];
  ssize_t count = read(reading, bytes, sizeof bytes);
  printf("%.*s|", count > 0 ? (int)count : 0, bytes);
}

/* Another connection, which begins at what is acknowledged. */
static void connect_again(void) {
  stream_detach(&output);
  totals.delivered = totals.acknowledged;
  check(stream_attach(&output, connection()) == 0, "stream_attach");
}

static void open_output(void) {
  int process[2];
  check(pipe2(process, O_NONBLOCK) == 0, "pipe2");
  writing = process[1];
  totals.sent_end = UINT64_MAX;
  check(stream_open(&output, process[0], connection(), -1) == 0, "stream_open");
  output.totals = &totals;
  output.resumes = true;
  check(kept_open(&output, whole_pipe(), whole_pipe()) == 0, "kept_open");
}

/* The process writes just after its pipe was found empty, while the reader has all that was sent. */
static void write_late(void) {
  write_all(writing, "one", 3);
  stream_move(&output);
  print_read();
  acknowledge(3);
  late = "late";
  stream_move(&output);
  printf("%s|", stream_source_events(&output) == EPOLLIN ? "waits for the process" : "does not wait for the process");
  stream_move(&output);
  print_read();
}

/* A pipe full of small writes takes no more, and does again once the reader has some of them. */
static void fill_kept(void) {
  int places = fcntl(output.kept, F_GETPIPE_SZ) / (int)sysconf(_SC_PAGESIZE);
  for (int count = 0; count < places + 2; count++) {
    write_all(writing, "x", 1);
    stream_move(&output);
  }
  printf("%d more than %d|", (int)(totals.received - (uint64_t)places), places);
  printf("%s|", stream_source_events(&output) == 0 ? "does not wait for the process" : "waits for the process");
  acknowledge(1);
  stream_move(&output);
  printf("%d more|", (int)(totals.received - (uint64_t)places));
}

static void drop_in_parts(int error) {
  write_all(writing, "onetwo", 6);
  stream_move(&output);
  print_read();
  acknowledge(3);
  forgets_two_until = error;
  stream_move(&output);
  stream_move(&output);
  connect_again();
  stream_move(&output);
  print_read();
}

/* The connection is lost while references to the bytes wait to be sent. */
static void detach_in_parts(int error) {
  write_all(writing, "onetwo", 6);
  target_is_full = true;
  stream_move(&output);
  forgets_two_until = error;
  connect_again();
  target_is_full = false;
  stream_move(&output);
  print_read();
}

int main(int count, char *words[]) {
  check(count == 2, "kept-steps CASE");
  open_output();
  if (strcmp(words[1], "late") == 0) write_late();
  if (strcmp(words[1], "full") == 0) fill_kept();
  if (strcmp(words[1], "drop-interrupted") == 0) drop_in_parts(EINTR);
  if (strcmp(words[1], "drop-failed") == 0) drop_in_parts(EIO);
  if (strcmp(words[1], "detach-interrupted") == 0) detach_in_parts(EINTR);
  return 0;
}
