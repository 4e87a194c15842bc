#define _GNU_SOURCE
#include "channel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../clock.h"
#include "../log.h"

/*
 * The socket's send buffer, which the kernel doubles, holds less than the ring: a full ring then always has unsent
 * records, and POLLOUT reports when the agent has read some.
 */
#define RING_BYTES (RING_CAPACITY * sizeof(struct record))
#define SEND_BUFFER_BYTES (RING_BYTES / 4 < 131072 ? RING_BYTES / 4 : 131072)
_Static_assert(RING_CAPACITY >= 1024, "the kernel's smallest send buffer must be smaller than the ring");

/* SCM_MAX_FD: the most descriptors that one message can carry. */
#define MAX_PASSED_DESCRIPTORS 253

bool channel_open(struct channel *channel) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return false;
  /* Only vminit's end is non-blocking: each end has its own file status flags. */
  const int bytes = SEND_BUFFER_BYTES;
  if (fcntl(pair[0], F_SETFL, O_NONBLOCK) != 0 ||
      setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes) != 0) {
    int error = errno;
    close(pair[0]);
    close(pair[1]);
    errno = error;
    return false;
  }
  channel->fd = pair[0];
  channel->agent_fd = pair[1];
  channel->hung_up = false;
  channel->incoming_length = 0;
  return true;
}

void channel_prepare(struct channel *channel) {
  channel->fd = channel->agent_fd = channel->incoming_fd = -1;
}

/* Replaces the descriptor that belongs to the incoming record. */
static void set_incoming(struct channel *channel, int fd) {
  if (channel->incoming_fd >= 0) close(channel->incoming_fd);
  channel->incoming_fd = fd;
}

/* Releases the records that the agent has read completely. */
static void release_read(struct channel *channel) {
  int unread = 0;
  if (channel->fd < 0 || ioctl(channel->agent_fd, FIONREAD, &unread) != 0) return;
  uint64_t read_bytes = channel->sent - (uint64_t)unread;
  ring_release(&channel->ring, read_bytes / sizeof(struct record));
}

void channel_close(struct channel *channel) {
  if (channel->fd < 0) return;
  release_read(channel);
  channel->sent = channel->ring.oldest * sizeof(struct record);
  close(channel->fd);
  close(channel->agent_fd);
  channel->fd = channel->agent_fd = -1;
  set_incoming(channel, -1);
}

void channel_publish_exit(struct channel *channel, struct record *record) {
  record->sequence = ++channel->exits;
  if (ring_full(&channel->ring)) release_read(channel);
  ring_push(&channel->ring, record);
}

void channel_publish_shutdown(struct channel *channel, int signal) {
  struct record record = {
      .version = RECORD_VERSION,
      .kind = RECORD_SHUTDOWN,
      .status = signal,
      .boottime_ns = boottime_ns(),
  };
  ring_push_reserved(&channel->ring, &record);
}

void channel_flush(struct channel *channel) {
  if (channel->fd < 0) return;
  release_read(channel);
  for (;;) {
    size_t length;
    const void *bytes = ring_bytes(&channel->ring, channel->sent, &length);
    if (length == 0) return;
    ssize_t sent = send(channel->fd, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return;
    channel->sent += (uint64_t)sent;
  }
}

short channel_events(const struct channel *channel) {
  if (channel->fd < 0 || channel->hung_up) return 0;
  bool unsent = channel->sent < channel->ring.next * sizeof(struct record);
  return unsent ? POLLIN | POLLOUT : POLLIN;
}

/* Keeps the last descriptor of a message for the incoming record, and closes the others. */
static void take_passed_descriptors(struct channel *channel, struct msghdr *message) {
  for (struct cmsghdr *control = CMSG_FIRSTHDR(message); control != NULL; control = CMSG_NXTHDR(message, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; i++) {
      int fd;
      memcpy(&fd, CMSG_DATA(control) + i * sizeof fd, sizeof fd);
      set_incoming(channel, fd);
    }
  }
}

bool channel_receive(struct channel *channel, struct record *record, int *passed) {
  while (channel->fd >= 0 && !channel->hung_up) {
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(MAX_PASSED_DESCRIPTORS * sizeof(int))];
    struct iovec bytes = {
        .iov_base = (char *)&channel->incoming + channel->incoming_length,
        .iov_len = sizeof channel->incoming - channel->incoming_length,
    };
    struct msghdr message = {
        .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t received = recvmsg(channel->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (received < 0 && errno == EINTR) continue;
    if (received < 0 && errno == EAGAIN) return false;
    if (received <= 0) {
      log_line("the agent shut its side of the channel");
      channel->hung_up = true;
      return false;
    }
    take_passed_descriptors(channel, &message);
    channel->incoming_length += (size_t)received;
    if (channel->incoming_length < sizeof channel->incoming) continue;
    channel->incoming_length = 0;
    *record = channel->incoming;
    *passed = channel->incoming_fd;
    channel->incoming_fd = -1;
    return true;
  }
  return false;
}
