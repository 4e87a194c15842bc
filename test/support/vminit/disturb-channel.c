/*
 * An agent that sends vminit random records, whole and in pieces, some with descriptors, while processes end. It exits with
 * 0 when vminit has answered each command to the store, in order. Its argument is the seed.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "channel/record.h"

#define CHANNEL_FD 3
#define RECORDS 20000
#define LIMIT_MS 20000

/* xorshift64 */
static uint64_t state;
static uint64_t random_below(uint64_t limit) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state % limit;
}

static char names[RECORDS][RECORD_NAME_BYTES]; /* of commands that are to be answered */
static unsigned asked, answered;

/* Waits at most `timeout_ms`. Returns whether anything arrived. */
static bool read_records(int timeout_ms) {
  static struct record record;
  static size_t length;
  struct pollfd readable = {.fd = CHANNEL_FD, .events = POLLIN};
  if (poll(&readable, 1, timeout_ms) != 1) return false;
  ssize_t received = recv(CHANNEL_FD, (char *)&record + length, sizeof record - length, 0);
  if (received <= 0) exit(3);
  length += (size_t)received;
  if (length < sizeof record) return true;
  length = 0;
  if (record.kind != RECORD_STORE_RESULT) return true;
  if (answered == asked || memcmp(record.name, names[answered], RECORD_NAME_BYTES) != 0) exit(4);
  answered++;
  return true;
}

static struct record any_record(void) {
  struct record record;
  for (size_t i = 0; i < sizeof record; i++) ((char *)&record)[i] = (char)random_below(256);
  if (random_below(50) != 0) record.version = RECORD_VERSION;
  if (random_below(50) != 0) record.kind = RECORD_STORE + (uint32_t)random_below(1 + RECORD_THAW - RECORD_STORE);
  /* This record would end vminit. */
  if (record.kind == RECORD_END_WITH_AGENT) record.kind = RECORD_POWER_OFF;
  if (record.kind == RECORD_KEEP_EXIT || record.kind == RECORD_FORGET_EXIT) record.pid = (int32_t)random_below(40000);
  if (record.kind == RECORD_ACK_EXITS) record.sequence = random_below(RECORDS);
  bool about_store = record.kind == RECORD_STORE || record.kind == RECORD_UNSTORE;
  if (about_store && random_below(10) != 0)
    snprintf(record.name, sizeof record.name, "n%u", (unsigned)random_below(500));
  /* Each of them is answered. */
  if (about_store && record.result == ONLY_REFUSAL) record.result = 0;
  if (record.version == RECORD_VERSION && about_store) memcpy(names[asked++], record.name, RECORD_NAME_BYTES);
  return record;
}

static void send_piece(const char *bytes, size_t length) {
  int fds[3] = {STDIN_FILENO, STDIN_FILENO, STDIN_FILENO};
  size_t count = random_below(4);
  struct iovec data = {.iov_base = (char *)bytes, .iov_len = length};
  _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof fds)] = {0};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
  if (count > 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(count * sizeof fds[0]);
    *CMSG_FIRSTHDR(&message) = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(count * sizeof fds[0]), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), fds, count * sizeof fds[0]);
  }
  while (sendmsg(CHANNEL_FD, &message, MSG_DONTWAIT) != (ssize_t)length) read_records(LIMIT_MS);
}

static void make_orphan(void) {
  pid_t child = fork();
  if (child == 0) {
    if (fork() == 0) _exit(0);
    _exit(0);
  }
}

int main(int argc, char *argv[]) {
  state = argc > 1 ? strtoull(argv[1], NULL, 10) * 0x9e3779b97f4a7c15 + 1 : 1;
  for (int i = 0; i < RECORDS; i++) {
    struct record record = any_record();
    size_t first = random_below(4) == 0 ? random_below(sizeof record) : 0;
    if (first > 0) send_piece((char *)&record, first);
    send_piece((char *)&record + first, sizeof record - first);
    if (random_below(100) == 0) make_orphan();
    while (random_below(3) == 0 && read_records(0)) continue;
  }
  while (answered < asked && read_records(LIMIT_MS)) continue;
  return answered == asked ? 0 : 5;
}
