#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <linux/vm_sockets.h>

#include "../functions.h"
#include "../napi/call.h"

static int64_t socket_pair(struct call *call) {
  return pair_made(call, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, call->pair));
}

static int open_socket(int family) {
  return socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static int64_t listen_at(const void *address, socklen_t length, int64_t backlog) {
  int fd = open_socket(*(const sa_family_t *)address);
  if (fd == -1) return -1;
  return bind(fd, address, length) == 0 && listen(fd, backlog) == 0 ? fd : closed_after(fd, -1);
}

static struct sockaddr_vm vsock_address(const struct call *call) {
  return (struct sockaddr_vm){
      .svm_family = AF_VSOCK, .svm_cid = call->given[0].integer, .svm_port = call->given[1].integer};
}

static int64_t vsock_listen(struct call *call) {
  struct sockaddr_vm address = vsock_address(call);
  return listen_at(&address, sizeof address, call->given[2].integer);
}

/* Succeeds for a socket that is connecting or connected, even if the address is gone by now. */
static int start_connect(int fd, const void *address, socklen_t length) {
  struct sockaddr_storage peer;
  socklen_t peer_length = sizeof peer;
  if (getpeername(fd, (struct sockaddr *)&peer, &peer_length) == 0) return 0;
  if (connect(fd, address, length) == 0) return 0;
  return errno == EINPROGRESS || errno == EALREADY ? 0 : -1;
}

static int64_t vsock_socket(struct call *call) {
  const int64_t timeout_ms = call->given[0].integer;
  struct timeval timeout = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};
  int fd = open_socket(AF_VSOCK);
  if (fd == -1) return -1;
  if (setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_CONNECT_TIMEOUT, &timeout, sizeof timeout) == 0) return fd;
  return closed_after(fd, -1);
}

static int64_t vsock_connect(struct call *call) {
  struct sockaddr_vm address = vsock_address(call);
  return start_connect(call->given[2].integer, &address, sizeof address);
}

static int64_t vsock_peer(struct call *call) {
  struct sockaddr_storage storage;
  socklen_t length = sizeof storage;
  if (getpeername(call->given[0].integer, (struct sockaddr *)&storage, &length) != 0) return -1;
  if (storage.ss_family != AF_VSOCK) return -EAFNOSUPPORT;
  struct sockaddr_vm peer;
  memcpy(&peer, &storage, sizeof peer);
  napi_create_object(call->env, &call->value);
  napi_set_named_property(call->env, call->value, "cid", integer_value(call->env, peer.svm_cid));
  napi_set_named_property(call->env, call->value, "port", integer_value(call->env, peer.svm_port));
  return 0;
}

static int64_t socket_error(struct call *call) {
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(call->given[0].integer, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return -1;
  errno = error;
  return error == 0 ? 0 : -1;
}

/* `@NAME` is in the abstract namespace. Returns the address's length, or 0 with errno set. */
static socklen_t unix_address(const char *path, struct sockaddr_un *address) {
  *address = (struct sockaddr_un){.sun_family = AF_UNIX};
  errno = ENAMETOOLONG;
  if (strlen(path) >= sizeof address->sun_path) return 0;
  strcpy(address->sun_path, path);
  if (path[0] != '@') return sizeof *address;
  /* Every byte after the NUL belongs to the name, so the length must be exact (man 7 unix). */
  address->sun_path[0] = 0;
  return offsetof(struct sockaddr_un, sun_path) + strlen(path);
}

static int64_t unix_socket(struct call *call) {
  (void)call;
  return open_socket(AF_UNIX);
}

static int64_t unix_connect(struct call *call) {
  struct sockaddr_un address;
  socklen_t length = unix_address(call->given[0].string, &address);
  return length == 0 ? -1 : start_connect(call->given[1].integer, &address, length);
}

static int64_t unix_peer(struct call *call) {
  /* A byte longer than the longest address, which the kernel does not end with a NUL. */
  struct {
    struct sockaddr_un address;
    char end;
  } peer = {0};
  socklen_t length = sizeof peer.address;
  if (getpeername(call->given[0].integer, (struct sockaddr *)&peer.address, &length) != 0) return -1;
  if (peer.address.sun_family != AF_UNIX) return -EAFNOSUPPORT;
  napi_create_string_utf8(call->env, peer.address.sun_path, NAPI_AUTO_LENGTH, &call->value);
  return 0;
}

static int64_t unix_listen(struct call *call) {
  struct sockaddr_un address;
  socklen_t length = unix_address(call->given[0].string, &address);
  return length == 0 ? -1 : listen_at(&address, length, call->given[1].integer);
}

static int64_t shut_down(struct call *call) {
  return shutdown(call->given[0].integer, SHUT_RDWR);
}

static int64_t accept_connection(struct call *call) {
  return accept4(call->given[0].integer, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

const struct addon_function socket_functions[] = {
    {"socketPair", "", socket_pair, false},
    {"vsockListen", "iii", vsock_listen, false},
    {"vsockSocket", "i", vsock_socket, false},
    {"vsockConnect", "iii", vsock_connect, false},
    {"vsockPeer", "i", vsock_peer, false},
    {"socketError", "i", socket_error, false},
    {"unixListen", "si", unix_listen, false},
    {"unixSocket", "", unix_socket, false},
    {"unixConnect", "si", unix_connect, false},
    {"unixPeer", "i", unix_peer, false},
    {"accept", "i", accept_connection, false},
    {"shutdown", "i", shut_down, false},
    {0},
};
