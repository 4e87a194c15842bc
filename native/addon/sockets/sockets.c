#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <linux/vm_sockets.h>

#include "../functions.h"
#include "../napi/arguments.h"

/* Closes the socket and returns the -errno of the call that failed before. */
static napi_value close_failed(napi_env env, int fd) {
  int error = errno;
  close(fd);
  return integer_value(env, -error);
}

static napi_value socket_pair(napi_env env, napi_callback_info info) {
  (void)info;
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return call_result(env, -1);
  return pair_value(env, pair);
}

static int listen_at(int fd, const void *address, socklen_t length, int backlog) {
  return bind(fd, address, length) == 0 && listen(fd, backlog) == 0 ? 0 : -1;
}

static struct sockaddr_vm vsock_address(struct arguments *arguments) {
  struct sockaddr_vm address = {.svm_family = AF_VSOCK};
  address.svm_cid = integer_argument(arguments, 0);
  address.svm_port = integer_argument(arguments, 1);
  return address;
}

static napi_value vsock_listen(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  struct sockaddr_vm address = vsock_address(&arguments);
  int backlog = integer_argument(&arguments, 2);
  if (arguments.bad) return NULL;
  int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd == -1) return call_result(env, -1);
  if (listen_at(fd, &address, sizeof address, backlog) != 0) return close_failed(env, fd);
  return integer_value(env, fd);
}

/* Also succeeds for a socket that has begun to connect, or is connected, to an address that may be gone by now. */
static int start_connect(int fd, const void *address, socklen_t length) {
  struct sockaddr_storage peer;
  socklen_t peer_length = sizeof peer;
  if (getpeername(fd, (struct sockaddr *)&peer, &peer_length) == 0) return 0;
  if (connect(fd, address, length) == 0) return 0;
  return errno == EINPROGRESS || errno == EALREADY ? 0 : -1;
}

static napi_value vsock_socket(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  int64_t timeout_ms = integer_argument(&arguments, 0);
  if (arguments.bad) return NULL;
  struct timeval timeout = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};
  int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd == -1) return call_result(env, -1);
  if (setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_CONNECT_TIMEOUT, &timeout, sizeof timeout) != 0)
    return close_failed(env, fd);
  return integer_value(env, fd);
}

static napi_value vsock_connect(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  struct sockaddr_vm address = vsock_address(&arguments);
  int fd = integer_argument(&arguments, 2);
  if (arguments.bad) return NULL;
  return call_result(env, start_connect(fd, &address, sizeof address));
}

static napi_value vsock_peer(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  int fd = integer_argument(&arguments, 0);
  if (arguments.bad) return NULL;
  struct sockaddr_storage storage;
  socklen_t length = sizeof storage;
  if (getpeername(fd, (struct sockaddr *)&storage, &length) != 0) return call_result(env, -1);
  if (storage.ss_family != AF_VSOCK) return integer_value(env, -EAFNOSUPPORT);
  struct sockaddr_vm peer;
  memcpy(&peer, &storage, sizeof peer);
  napi_value object = NULL;
  napi_create_object(env, &object);
  napi_set_named_property(env, object, "cid", integer_value(env, peer.svm_cid));
  napi_set_named_property(env, object, "port", integer_value(env, peer.svm_port));
  return object;
}

static napi_value socket_error(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  int fd = integer_argument(&arguments, 0);
  if (arguments.bad) return NULL;
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return call_result(env, -1);
  return integer_value(env, -error);
}

/*
 * Makes an address of the path in argument 0; `@NAME` is a name in the abstract namespace. Returns the length of the
 * address, 0 when the path is too long. Releases the arguments.
 */
static socklen_t unix_address(struct arguments *arguments, struct sockaddr_un *address) {
  const char *path = string_argument(arguments, 0);
  *address = (struct sockaddr_un){.sun_family = AF_UNIX};
  bool fits = path != NULL && strlen(path) < sizeof address->sun_path;
  if (fits) strcpy(address->sun_path, path);
  arguments_release(arguments);
  if (!fits) return 0;
  if (address->sun_path[0] != '@') return sizeof *address;
  /* The name is every byte after the NUL, so the length must be its own. */
  socklen_t length = offsetof(struct sockaddr_un, sun_path) + strlen(address->sun_path);
  address->sun_path[0] = 0;
  return length;
}

static napi_value unix_socket(napi_env env, napi_callback_info info) {
  (void)info;
  return call_result(env, socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

static napi_value unix_connect(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  int fd = integer_argument(&arguments, 1);
  struct sockaddr_un address;
  socklen_t length = unix_address(&arguments, &address);
  if (arguments.bad) return NULL;
  if (length == 0) return integer_value(env, -ENAMETOOLONG);
  return call_result(env, start_connect(fd, &address, length));
}

static napi_value unix_peer(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  int fd = integer_argument(&arguments, 0);
  if (arguments.bad) return NULL;
  /* One byte longer than the longest address, which the kernel does not terminate with a NUL. */
  struct {
    struct sockaddr_un address;
    char end;
  } peer = {0};
  socklen_t length = sizeof peer.address;
  if (getpeername(fd, (struct sockaddr *)&peer.address, &length) != 0) return call_result(env, -1);
  if (peer.address.sun_family != AF_UNIX) return integer_value(env, -EAFNOSUPPORT);
  napi_value path = NULL;
  napi_create_string_utf8(env, peer.address.sun_path, NAPI_AUTO_LENGTH, &path);
  return path;
}

static napi_value unix_listen(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  int backlog = integer_argument(&arguments, 1);
  struct sockaddr_un address;
  socklen_t length = unix_address(&arguments, &address);
  if (arguments.bad) return NULL;
  if (length == 0) return integer_value(env, -ENAMETOOLONG);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd == -1) return call_result(env, -1);
  if (listen_at(fd, &address, length, backlog) != 0) return close_failed(env, fd);
  return integer_value(env, fd);
}

static napi_value accept_connection(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  int fd = integer_argument(&arguments, 0);
  if (arguments.bad) return NULL;
  return call_result(env, accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

const struct addon_function socket_functions[] = {
    {"socketPair", socket_pair},     {"vsockListen", vsock_listen}, {"vsockSocket", vsock_socket},
    {"vsockConnect", vsock_connect}, {"vsockPeer", vsock_peer},     {"socketError", socket_error},
    {"unixListen", unix_listen},     {"unixSocket", unix_socket},   {"unixConnect", unix_connect},
    {"unixPeer", unix_peer},         {"accept", accept_connection}, {NULL, NULL},
};
