#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/netlink.h>

#include "addon.h"
#include "arguments.h"

/* Group 1 is the kernel's own; udev sends its events to group 2. */
#define KERNEL_GROUP 1

/* A datagram has at most 2 KiB of values behind its path. */
#define PLACE_BYTES 8192
#define AT_ONCE (SCRATCH_BYTES / PLACE_BYTES)

/* Two NULs end an event. */
#define ENDING_BYTES 2

static napi_value uevent_listen(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  int buffer_bytes = integer_argument(&arguments, 0);
  if (arguments.bad) return NULL;
  int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT);
  if (fd == -1) return call_result(env, -1);
  /* Beyond the limit of sysctl net.core.rmem_max only root may go, and a smaller buffer serves too. */
  if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer_bytes, sizeof buffer_bytes) != 0)
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes);
  struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = KERNEL_GROUP};
  if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0) {
    int error = errno;
    close(fd);
    return integer_value(env, -error);
  }
  return integer_value(env, fd);
}

struct received {
  struct mmsghdr messages[AT_ONCE];
  struct iovec places[AT_ONCE];
  struct sockaddr_nl senders[AT_ONCE];
};

/* How many datagrams have come, each in a place of its own, or -1. One error after the first is told by the next call. */
static int receive(int fd, struct received *received, char *scratch) {
  for (int index = 0; index < AT_ONCE; index++) {
    received->places[index] = (struct iovec){scratch + index * PLACE_BYTES, PLACE_BYTES - ENDING_BYTES};
    received->messages[index].msg_hdr = (struct msghdr){.msg_name = &received->senders[index],
                                                        .msg_namelen = sizeof received->senders[index],
                                                        .msg_iov = &received->places[index],
                                                        .msg_iovlen = 1};
  }
  return recvmmsg(fd, received->messages, AT_ONCE, MSG_DONTWAIT, NULL);
}

static napi_value uevent_receive(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  int fd = integer_argument(&arguments, 0);
  if (arguments.bad) return NULL;
  char *scratch = addon_of(env)->scratch;
  struct received received = {0};
  int count = receive(fd, &received, scratch);
  if (count == -1) return call_result(env, -1);
  size_t length = 0;
  for (int index = 0; index < count; index++) {
    /* Any process may send to the group; the kernel alone has port 0. */
    if (received.senders[index].nl_pid != 0) continue;
    size_t size = received.messages[index].msg_len;
    const char *datagram = received.places[index].iov_base;
    while (size > 0 && datagram[size - 1] == '\0') size--;
    memmove(scratch + length, datagram, size);
    memset(scratch + length + size, '\0', ENDING_BYTES);
    length += size + ENDING_BYTES;
  }
  napi_value text = NULL;
  napi_create_string_utf8(env, scratch, length, &text);
  return text;
}

const struct addon_function uevent_functions[] = {
    {"ueventListen", uevent_listen},
    {"ueventReceive", uevent_receive},
    {NULL, NULL},
};
