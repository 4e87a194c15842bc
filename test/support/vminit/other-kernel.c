/*
 * Kernel answers that a test cannot cause otherwise: epoll_ctl(2) fails while the file $FULL_EPOLL exists, as at the user's
 * limit of watches; with $PEER_CID all clients come from port 77 of that CID, over vsock.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/vm_sockets.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

int __real_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);
int __real_accept4(int fd, struct sockaddr *address, socklen_t *length, int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *length, int flags);
int __real_getsockopt(int fd, int level, int option, void *value, socklen_t *length);
int __wrap_getsockopt(int fd, int level, int option, void *value, socklen_t *length);

int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event) {
  const char *full = getenv("FULL_EPOLL");
  if (operation == EPOLL_CTL_ADD && full != NULL && access(full, F_OK) == 0) {
    errno = ENOSPC;
    return -1;
  }
  return __real_epoll_ctl(epoll, operation, fd, event);
}

int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *length, int flags) {
  const char *cid = getenv("PEER_CID");
  if (cid == NULL) return __real_accept4(fd, address, length, flags);
  const struct sockaddr_vm peer = {.svm_family = AF_VSOCK, .svm_cid = (unsigned)strtoul(cid, NULL, 10), .svm_port = 77};
  memcpy(address, &peer, sizeof peer);
  *length = sizeof peer;
  return __real_accept4(fd, NULL, NULL, flags);
}

int __wrap_getsockopt(int fd, int level, int option, void *value, socklen_t *length) {
  int result = __real_getsockopt(fd, level, option, value, length);
  if (result == 0 && option == SO_DOMAIN && getenv("PEER_CID") != NULL) *(int *)value = AF_VSOCK;
  return result;
}
