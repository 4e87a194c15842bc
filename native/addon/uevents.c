#define _GNU_SOURCE
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/netlink.h>

#include "addon.h"
#include "arguments.h"

/* Group 1 is the kernel's own; udev sends its events to group 2. */
#define KERNEL_GROUP 1

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

static napi_value uevent_receive(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  int fd = integer_argument(&arguments, 0);
  if (arguments.bad) return NULL;
  char *scratch = addon_of(env)->scratch;
  struct sockaddr_nl sender = {0};
  struct iovec datagram = {scratch, SCRATCH_BYTES};
  struct msghdr message = {
      .msg_name = &sender, .msg_namelen = sizeof sender, .msg_iov = &datagram, .msg_iovlen = 1};
  ssize_t length = recvmsg(fd, &message, MSG_DONTWAIT);
  if (length == -1) return call_result(env, -1);
  napi_value buffer = NULL;
  /* Any process may send to the group; the kernel alone has port 0. */
  if (sender.nl_pid == 0) napi_create_buffer_copy(env, length, scratch, NULL, &buffer);
  return buffer;
}

const struct addon_function uevent_functions[] = {
    {"ueventListen", uevent_listen},
    {"ueventReceive", uevent_receive},
    {NULL, NULL},
};
