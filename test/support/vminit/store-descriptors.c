/*
 * An agent that stores the reading ends of pipes in vminit, some under names that vminit refuses, and exits with 1. The
 * second one prints what it reads from each descriptor that it gets, and the numbers of all that it has.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "channel/record.h"

/* Sends the record alone when `fd` is -1. */
static int store(const char *name, int fd) {
  struct record record = {.version = RECORD_VERSION, .kind = RECORD_STORE};
  strncpy(record.name, name, RECORD_NAME_BYTES);
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
  return sendmsg(3, &message, 0) == sizeof record;
}

static int store_all(void) {
  const char *names[] = {"one", "two", "two", "no name", "three"};
  int ends[2];
  for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
    char content = "12xx3"[i];
    if (pipe(ends) != 0 || write(ends[1], &content, 1) != 1 || !store(names[i], ends[0])) return 2;
    close(ends[0]);
    close(ends[1]);
  }
  return store("nothing", -1) ? 1 : 2;
}

static int print_stored(int count, char *words[]) {
  for (int i = 0; i < count; i += 2) {
    int fd = 0;
    char content = '?';
    sscanf(strchr(words[i + 1], '=') + 1, "%d", &fd);
    if (read(fd, &content, 1) != 1) return 2;
    printf("%s %s: %c\n", words[i], words[i + 1], content);
  }
  for (int fd = 0; fd < 64; fd++)
    if (fcntl(fd, F_GETFD) >= 0) printf("%d ", fd);
  puts("");
  return 0;
}

/* The arguments are `--channel 3 --restarts N` and the stored descriptors. */
int main(int argc, char *argv[]) {
  return strcmp(argv[4], "0") == 0 ? store_all() : print_stored(argc - 5, argv + 5);
}
