#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "addon.h"
#include "arguments.h"

/* 0, or -1 with errno. */
static int name_request(struct ifreq *request, const char *name) {
  if (strlen(name) >= sizeof request->ifr_name) {
    errno = ENODEV;
    return -1;
  }
  strcpy(request->ifr_name, name);
  return 0;
}

/* ioctl(2) on a socket of the network namespace: any will do. */
static int interface_ioctl(unsigned long command, struct ifreq *request) {
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd == -1) return -1;
  int result = ioctl(fd, command, request);
  int error = errno;
  close(fd);
  errno = error;
  return result;
}

static int bring_up(const char *name) {
  struct ifreq request = {0};
  if (name_request(&request, name) == -1 || interface_ioctl(SIOCGIFFLAGS, &request) == -1) return -1;
  request.ifr_flags |= IFF_UP;
  return interface_ioctl(SIOCSIFFLAGS, &request);
}

static int set_ipv4(unsigned long command, const char *name, const char *address) {
  struct ifreq request = {0};
  struct sockaddr_in ipv4 = {.sin_family = AF_INET};
  if (inet_pton(AF_INET, address, &ipv4.sin_addr) != 1) {
    errno = EINVAL;
    return -1;
  }
  if (name_request(&request, name) == -1) return -1;
  memcpy(&request.ifr_addr, &ipv4, sizeof ipv4);
  return interface_ioctl(command, &request);
}

static napi_value set_interface_up(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  const char *name = string_argument(&arguments, 0);
  napi_value result = NULL;
  if (!arguments.bad) result = call_result(env, bring_up(name));
  arguments_release(&arguments);
  return result;
}

static napi_value call_set_ipv4(napi_env env, napi_callback_info info, unsigned long command) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  const char *name = string_argument(&arguments, 0);
  const char *address = string_argument(&arguments, 1);
  napi_value result = NULL;
  if (!arguments.bad) result = call_result(env, set_ipv4(command, name, address));
  arguments_release(&arguments);
  return result;
}

static napi_value set_interface_address(napi_env env, napi_callback_info info) {
  return call_set_ipv4(env, info, SIOCSIFADDR);
}

static napi_value set_interface_netmask(napi_env env, napi_callback_info info) {
  return call_set_ipv4(env, info, SIOCSIFNETMASK);
}

const struct addon_function interface_functions[] = {
    {"setInterfaceAddress", set_interface_address},
    {"setInterfaceNetmask", set_interface_netmask},
    {"setInterfaceUp", set_interface_up},
    {NULL, NULL},
};
