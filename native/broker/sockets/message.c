#define _GNU_SOURCE
#include "message.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* SCM_MAX_FD: the most descriptors that one message can carry. */
#define MAX_PASSED_DESCRIPTORS 253

ssize_t message_send(int fd, const void *bytes, size_t length, int passed) {
  _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof passed)] = {0};
  struct iovec data = {(void *)bytes, length};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
  if (passed >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    struct cmsghdr *part = CMSG_FIRSTHDR(&message);
    *part = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof passed), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(part), &passed, sizeof passed);
  }
  return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void take_descriptors(struct msghdr *message, int *passed) {
  for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part != NULL; part = CMSG_NXTHDR(message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; i++) {
      int fd;
      memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      if (*passed < 0)
        *passed = fd;
      else
        close(fd);
    }
  }
}

ssize_t message_receive(int fd, void *bytes, size_t room, int *passed) {
  _Alignas(struct cmsghdr) char control[CMSG_SPACE(MAX_PASSED_DESCRIPTORS * sizeof(int))];
  struct iovec data = {bytes, room};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  *passed = -1;
  ssize_t length = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (length < 0) return -1;
  take_descriptors(&message, passed);
  if ((message.msg_flags & MSG_TRUNC) == 0) return length;
  if (*passed >= 0) close(*passed);
  *passed = -1;
  errno = EMSGSIZE;
  return -1;
}
