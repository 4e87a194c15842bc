#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/netlink.h>

#include "../functions.h"
#include "../napi/addon.h"
#include "../napi/call.h"

/* The kernel sends its uevents to group 1, udev sends its own to group 2. */
#define KERNEL_GROUP 1

/* A uevent is a path and at most 2 KiB of values. */
#define UEVENT_BYTES 8192
#define UEVENTS_PER_CALL (SCRATCH_BYTES / UEVENT_BYTES)

/* Two NULs terminate each event in the text that JavaScript gets. */
#define TERMINATOR_BYTES 2

static int set_up(int fd) {
  const int on = 1;
  const struct sockaddr_nl address = {.nl_family = AF_NETLINK};
  if (bind(fd, (const struct sockaddr *)&address, sizeof address) != 0) return -1;
  /* Error answers carry the kernel's message and leave out the failed request. */
  return setsockopt(fd, SOL_NETLINK, NETLINK_EXT_ACK, &on, sizeof on) == 0 &&
                 setsockopt(fd, SOL_NETLINK, NETLINK_CAP_ACK, &on, sizeof on) == 0
             ? 0
             : -1;
}

static int64_t netlink_route(struct call *call) {
  (void)call;
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
  if (fd == -1) return -1;
  return set_up(fd) == 0 ? fd : closed_after(fd, -1);
}

static int64_t uevent_listen(struct call *call) {
  const int buffer_bytes = call->given[0].integer;
  int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT);
  if (fd == -1) return -1;
  /* Only root may exceed sysctl net.core.rmem_max. A smaller buffer works as well. */
  if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer_bytes, sizeof buffer_bytes) != 0)
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes);
  struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = KERNEL_GROUP};
  return bind(fd, (struct sockaddr *)&address, sizeof address) == 0 ? fd : closed_after(fd, -1);
}

struct received {
  struct mmsghdr messages[UEVENTS_PER_CALL];
  struct iovec buffers[UEVENTS_PER_CALL];
  struct sockaddr_nl senders[UEVENTS_PER_CALL];
};

/* Returns the number of datagrams, or -1. The next call reports an error after the first datagram. */
static int receive(int fd, struct received *received, char *scratch) {
  for (int index = 0; index < UEVENTS_PER_CALL; index++) {
    received->buffers[index] = (struct iovec){scratch + index * UEVENT_BYTES, UEVENT_BYTES - TERMINATOR_BYTES};
    received->messages[index].msg_hdr = (struct msghdr){.msg_name = &received->senders[index],
                                                        .msg_namelen = sizeof received->senders[index],
                                                        .msg_iov = &received->buffers[index],
                                                        .msg_iovlen = 1};
  }
  return recvmmsg(fd, received->messages, UEVENTS_PER_CALL, MSG_DONTWAIT, NULL);
}

static int64_t uevent_receive(struct call *call) {
  char *scratch = addon_of(call->env)->scratch;
  struct received received = {0};
  int count = receive(call->given[0].integer, &received, scratch);
  if (count == -1) return -1;
  size_t length = 0;
  for (int index = 0; index < count; index++) {
    /* Any process can send to the group, but only the kernel sends from port 0. */
    if (received.senders[index].nl_pid != 0) continue;
    size_t size = received.messages[index].msg_len;
    const char *datagram = received.buffers[index].iov_base;
    while (size > 0 && datagram[size - 1] == '\0') size--;
    memmove(scratch + length, datagram, size);
    memset(scratch + length + size, '\0', TERMINATOR_BYTES);
    length += size + TERMINATOR_BYTES;
  }
  napi_create_string_utf8(call->env, scratch, length, &call->value);
  return 0;
}

const struct addon_function netlink_functions[] = {
    {"netlinkRoute", "", netlink_route, false},
    {"ueventListen", "i", uevent_listen, false},
    {"ueventReceive", "i", uevent_receive, false},
    {0},
};
