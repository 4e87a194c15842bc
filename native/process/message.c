#define _GNU_SOURCE
#include "message.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

ssize_t message_send(int fd, const void *bytes, size_t length, int passed) {
  return message_send_some(fd, bytes, length, (int[MOST_SENT_DESCRIPTORS]){passed, -1, -1});
}

ssize_t message_send_some(int fd, const void *bytes, size_t length, const int passed[MOST_SENT_DESCRIPTORS]) {
  size_t size = 0;
  for (int i = 0; i < MOST_SENT_DESCRIPTORS && passed[i] >= 0; i++) size += sizeof passed[i];
  _Alignas(struct cmsghdr) char control[CMSG_SPACE(MOST_SENT_DESCRIPTORS * sizeof(int))] = {0};
  struct iovec data = {(void *)bytes, length};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
  if (size > 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(size);
    struct cmsghdr *part = CMSG_FIRSTHDR(&message);
    *part = (struct cmsghdr){.cmsg_len = CMSG_LEN(size), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(part), passed, size);
  }
  return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void take_descriptors(struct msghdr *message, struct passed *passed) {
  passed->count = 0;
  for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part != NULL; part = CMSG_NXTHDR(message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    size_t bytes = part->cmsg_len - CMSG_LEN(0);
    memcpy(passed->fds + passed->count, CMSG_DATA(part), bytes);
    passed->count += bytes / sizeof(int);
  }
}

static void close_from(const struct passed *passed, size_t first) {
  for (size_t i = first; i < passed->count; i++) close(passed->fds[i]);
}

static ssize_t receive(int fd, struct iovec *vectors, size_t count, struct passed *passed, int flags) {
  _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof passed->fds)];
  struct msghdr message = {
      .msg_iov = vectors, .msg_iovlen = count, .msg_control = control, .msg_controllen = sizeof control};
  passed->count = 0;
  ssize_t length = recvmsg(fd, &message, flags | MSG_CMSG_CLOEXEC);
  if (length < 0) return -1;
  take_descriptors(&message, passed);
  if ((message.msg_flags & MSG_TRUNC) == 0) return length;
  close_from(passed, 0);
  passed->count = 0;
  errno = EMSGSIZE;
  return -1;
}

ssize_t message_receive_all(int fd, void *bytes, size_t room, struct passed *passed, int flags) {
  return receive(fd, &(struct iovec){bytes, room}, 1, passed, flags);
}

ssize_t message_receive_parts(int fd, struct iovec *vectors, size_t count, int *passed) {
  struct passed all;
  ssize_t length = receive(fd, vectors, count, &all, MSG_DONTWAIT);
  *passed = all.count > 0 ? all.fds[0] : -1;
  close_from(&all, 1);
  return length;
}

ssize_t message_receive(int fd, void *bytes, size_t room, int *passed) {
  return message_receive_parts(fd, &(struct iovec){bytes, room}, 1, passed);
}
