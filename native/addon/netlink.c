#define _GNU_SOURCE
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/netlink.h>

#include "addon.h"
#include "arguments.h"

/* 0, or -1 with errno. */
static int set_up(int fd) {
  const int on = 1;
  const struct sockaddr_nl address = {.nl_family = AF_NETLINK};
  if (bind(fd, (const struct sockaddr *)&address, sizeof address) != 0) return -1;
  /* The kernel's own words about a failure, and not the failed request once more. */
  return setsockopt(fd, SOL_NETLINK, NETLINK_EXT_ACK, &on, sizeof on) == 0 &&
                 setsockopt(fd, SOL_NETLINK, NETLINK_CAP_ACK, &on, sizeof on) == 0
             ? 0
             : -1;
}

static napi_value netlink_route(napi_env env, napi_callback_info info) {
  (void)info;
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
  if (fd == -1) return call_result(env, -1);
  if (set_up(fd) != 0) {
    int error = errno;
    close(fd);
    return integer_value(env, -error);
  }
  return integer_value(env, fd);
}

const struct addon_function netlink_functions[] = {
    {"netlinkRoute", netlink_route},
    {NULL, NULL},
};
