/*
 * Agents that store descriptors in vminit. The first agent stores read ends of pipes, some under refused names, prints the
 * answers, stores one more and exits without reading that answer. The second agent prints what it reads from each
 * descriptor and the numbers of all, replaces them by as many as the store takes, and exits. The third agent prints how
 * many it gets, and whether it can open one more.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../process/message.h"
#include "channel/record.h"
#include "kept/store.h"

#define CHANNEL_FD 3
#define LIST_FD 4

/* Sends the record alone when `fd` is -1. */
static void command(enum record_kind kind, const char *name, int fd) {
  struct record record = {.version = RECORD_VERSION, .kind = kind};
  snprintf(record.name, RECORD_NAME_BYTES, "%s", name);
  struct iovec bytes = {.iov_base = &record, .iov_len = sizeof record};
  _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {0};
  struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1};
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    *CMSG_FIRSTHDR(&message) =
        (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &fd, sizeof fd);
  }
  if (sendmsg(CHANNEL_FD, &message, 0) != sizeof record) exit(2);
}

/* Waits for the next answer. Returns its errno. */
static int answer(const char *name) {
  struct record record;
  do
    if (recv(CHANNEL_FD, &record, sizeof record, MSG_WAITALL) != sizeof record) exit(2);
  while (record.kind != RECORD_STORE_RESULT);
  if (strncmp(record.name, name, RECORD_NAME_BYTES - 1) != 0) exit(2);
  return record.result;
}

static void print_answer(const char *name) {
  int error = answer(name);
  printf("%s: %s\n", name, error == 0 ? "ok" : strerrorname_np(error));
}

static void store_pipe(const char *name, char content) {
  int ends[2];
  if (pipe(ends) != 0 || write(ends[1], &content, 1) != 1) exit(2);
  command(RECORD_STORE, name, ends[0]);
  close(ends[0]);
  close(ends[1]);
}

/* Sends two records with their descriptors in one message. Only a refusal is answered. */
static void store_two(const char *first, const char *second) {
  struct record records[2] = {{.version = RECORD_VERSION, .kind = RECORD_STORE, .result = ONLY_REFUSAL},
                              {.version = RECORD_VERSION, .kind = RECORD_STORE, .result = ONLY_REFUSAL}};
  snprintf(records[0].name, RECORD_NAME_BYTES, "%s", first);
  snprintf(records[1].name, RECORD_NAME_BYTES, "%s", second);
  int ends[2][2];
  for (int i = 0; i < 2; i++)
    if (pipe(ends[i]) != 0 || write(ends[i][1], "45" + i, 1) != 1) exit(2);
  const int fds[] = {ends[0][0], ends[1][0], -1};
  if (message_send_some(CHANNEL_FD, records, sizeof records, fds) != sizeof records) exit(2);
  for (int i = 0; i < 4; i++) close(ends[i / 2][i % 2]);
}

static void store_some(void) {
  const char *names[] = {"one", "two", "two", "no name", "gone"};
  for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) store_pipe(names[i], "12xxx"[i]);
  command(RECORD_STORE, "nothing", -1);
  command(RECORD_UNSTORE, "gone", -1);
  command(RECORD_UNSTORE, "gone", -1);
  for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) print_answer(names[i]);
  print_answer("nothing");
  print_answer("gone");
  print_answer("gone");
  store_two("four", "five");
  store_two("five", "six");
  print_answer("five");
  store_pipe("three", '3');
}

static void print_stored(void) {
  FILE *list = fdopen(dup(LIST_FD), "r");
  char name[RECORD_NAME_BYTES], content;
  int fd;
  while (fscanf(list, "%31s %d", name, &fd) == 2) {
    if (read(fd, &content, 1) != 1) exit(2);
    printf("%s %d: %c\n", name, fd, content);
    command(RECORD_UNSTORE, name, -1);
    if (answer(name) != 0) exit(2);
  }
  fclose(list);
  for (fd = 0; fd < 64; fd++)
    if (fcntl(fd, F_GETFD) >= 0) printf("%d ", fd);
  puts("");
}

static void fill_store(void) {
  char name[RECORD_NAME_BYTES];
  int refused = 0;
  for (int i = 0; i < STORE_CAPACITY + 2; i++) {
    snprintf(name, sizeof name, "n%d", i);
    command(RECORD_STORE, name, LIST_FD);
    refused += answer(name) != 0;
  }
  command(RECORD_STORE, "more", LIST_FD);
  print_answer("more");
  printf("%d refused\n", refused);
}

static void count_stored(void) {
  FILE *list = fdopen(LIST_FD, "r");
  int count = 0, fd;
  while (fscanf(list, "%*s %d", &fd) == 1) count += fcntl(fd, F_GETFD) >= 0;
  printf("%d given, %s\n", count, open("/dev/null", O_RDONLY) >= 0 ? "one more opened" : "none opened");
}

int main(int argc, char *argv[]) {
  setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
  switch (argc == 9 ? argv[4][0] : '?') {
    case '0':
      store_some();
      return 1;
    case '1':
      print_stored();
      fill_store();
      return 1;
    case '2':
      count_stored();
      return 0;
    default:
      return 2;
  }
}
