#define _GNU_SOURCE
#include "root-device.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"

#define KERNEL_UEVENTS 1 /* the multicast group */

static int open_uevents(void) {
  int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT);
  struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = KERNEL_UEVENTS};
  if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
  int error = errno;
  close(fd);
  errno = error;
  return -1;
}

/* The node may exist a moment before the device behind it answers (ENXIO): only an open that succeeds counts. */
static bool is_there(const char *path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat status;
  bool block = fstat(fd, &status) == 0 && S_ISBLK(status.st_mode);
  close(fd);
  if (!block) errno = ENOTBLK;
  return block;
}

/* Whichever device an event is about, and even when events were dropped: it is a reason to look again. */
static void discard(int events) {
  char event[8192];
  while (recv(events, event, sizeof event, 0) >= 0 || errno == EINTR || errno == ENOBUFS) continue;
}

bool wait_for_device(const char *path, int limit_ms) {
  int events = open_uevents(); /* before the first look, so that no event is missed in between */
  if (events < 0) return false;
  const int64_t deadline = monotonic_ms() + limit_ms;
  bool there;
  int error;
  while (!(there = is_there(path)) && (error = errno) != ENOTBLK) {
    int64_t left = deadline - monotonic_ms();
    struct pollfd readable = {.fd = events, .events = POLLIN};
    error = ETIMEDOUT;
    if (left <= 0 || poll(&readable, 1, (int)left) == 0) break;
    discard(events);
  }
  close(events);
  if (!there) errno = error;
  return there;
}
