#define _GNU_SOURCE
#include "channel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../clock.h"
#include "../log.h"

/* Room for a record of each stored descriptor in one go. The kernel doubles it (man 7 socket). */
#define AGENT_BUFFER_BYTES (8 << 20)

/* Exits in one batch. The other outgoing records are for answers. */
#define EXIT_BATCH (OUTGOING_RECORDS / 2)

bool channel_open(struct channel *channel) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return false;
  /* Only vminit's end is non-blocking. Each end has its own flags. */
  if (fcntl(pair[0], F_SETFL, O_NONBLOCK) != 0) {
    int error = errno;
    close(pair[0]);
    close(pair[1]);
    errno = error;
    return false;
  }
  /* Fails without privileges; the kernel's default applies then. */
  const int bytes = AGENT_BUFFER_BYTES;
  setsockopt(pair[1], SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes);
  channel->fd = pair[0];
  channel->agent_fd = pair[1];
  channel->hung_up = channel->draining = false;
  channel->incoming_length = channel->outgoing_count = channel->outgoing_sent = 0;
  channel->backlog_end = channel->ring.next;
  channel->backlog_told = channel->displaced_told = channel->shutdown_told = false;
  return true;
}

void channel_prepare(struct channel *channel) {
  channel->fd = channel->agent_fd = -1;
}

static int next_passed(struct channel *channel) {
  return channel->next_fd < channel->incoming_fds.count ? channel->incoming_fds.fds[channel->next_fd++] : -1;
}

static void drop_passed(struct channel *channel) {
  for (int fd = next_passed(channel); fd >= 0; fd = next_passed(channel)) close(fd);
  channel->incoming_fds.count = channel->next_fd = 0;
}

void channel_drain(struct channel *channel) {
  channel->draining = true;
}

void channel_close(struct channel *channel) {
  if (channel->fd < 0) return;
  ring_rewind(&channel->ring);
  kept_exits_rewind(&channel->kept);
  close(channel->fd);
  close(channel->agent_fd);
  channel->fd = channel->agent_fd = -1;
  drop_passed(channel);
}

static void queue_exit(struct channel *channel, struct record record) {
  record.sequence = ++channel->exits;
  ring_push(&channel->ring, &record);
}

void channel_publish_exit(struct channel *channel, const struct record *record) {
  if (!kept_exits_record(&channel->kept, record)) queue_exit(channel, *record);
}

void channel_publish_shutdown(struct channel *channel, int signal) {
  channel->shutdown_signal = signal;
}

void channel_keep_exit(struct channel *channel, int32_t pid) {
  if (!kept_exits_register(&channel->kept, pid)) {
    if (!channel->too_many_logged) log_line("more than %d exits cannot be kept", KEPT_CAPACITY);
    channel->too_many_logged = true;
    return;
  }
  /* While a process or its zombie has the pid, an exit in the ring belongs to an earlier process. */
  if (pid > 0 && (kill(pid, 0) == 0 || errno != ESRCH)) return;
  const struct record *exit = ring_find(&channel->ring, pid);
  if (exit != NULL) kept_exits_record(&channel->kept, exit);
}

void channel_forget_exit(struct channel *channel, int32_t pid) {
  struct record unsent;
  if (kept_exits_forget(&channel->kept, pid, &unsent)) queue_exit(channel, unsent);
}

void channel_answer(struct channel *channel, enum record_kind kind, const char name[RECORD_NAME_BYTES], int result) {
  if (channel->draining || channel->fd < 0) return;
  struct record *answer = &channel->outgoing[channel->outgoing_count++];
  *answer = (struct record){.version = RECORD_VERSION, .kind = kind};
  memcpy(answer->name, name, RECORD_NAME_BYTES);
  answer->result = result;
}

static struct record plain_record(enum record_kind kind) {
  return (struct record){.version = RECORD_VERSION, .kind = kind, .boottime_ns = boottime_ns()};
}

static bool next_record(struct channel *channel, struct record *record) {
  struct ring *ring = &channel->ring;
  if (channel->shutdown_signal != 0 && !channel->shutdown_told) {
    channel->shutdown_told = true;
    *record = plain_record(RECORD_SHUTDOWN);
    record->status = channel->shutdown_signal;
    return true;
  }
  /* Sent before the backlog, because from then on the ring displaces only exits that this agent was sent. */
  if (!channel->displaced_told) {
    channel->displaced_told = true;
    *record = plain_record(RECORD_OVERFLOW);
    record->sequence = ring_displaced(ring, channel->exits);
    if (record->sequence > 0) return true;
  }
  const struct record *next = kept_exits_take(&channel->kept);
  if (next == NULL && !channel->backlog_told && ring->sent >= channel->backlog_end) {
    channel->backlog_told = true;
    *record = plain_record(RECORD_BACKLOG_END);
    return true;
  }
  if (next == NULL) next = ring_take(ring);
  if (next != NULL) *record = *next;
  return next != NULL;
}

static size_t unsent_bytes(const struct channel *channel) {
  return channel->outgoing_count * sizeof(struct record) - channel->outgoing_sent;
}

static void fill_outgoing(struct channel *channel) {
  channel->outgoing_count = channel->outgoing_sent = 0;
  while (channel->outgoing_count < EXIT_BATCH && next_record(channel, &channel->outgoing[channel->outgoing_count]))
    channel->outgoing_count++;
}

void channel_flush(struct channel *channel) {
  if (channel->fd < 0) return;
  for (;;) {
    if (unsent_bytes(channel) == 0) fill_outgoing(channel);
    if (unsent_bytes(channel) == 0) return;
    const char *bytes = (const char *)channel->outgoing + channel->outgoing_sent;
    ssize_t sent = send(channel->fd, bytes, unsent_bytes(channel), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return;
    channel->outgoing_sent += (size_t)sent;
  }
}

bool channel_can_answer(const struct channel *channel) {
  return channel->outgoing_count < OUTGOING_RECORDS || channel->draining || channel->fd < 0;
}

short channel_events(const struct channel *channel) {
  if (channel->fd < 0) return 0;
  short in = channel->hung_up || !channel_can_answer(channel) ? 0 : POLLIN;
  short out = channel->hung_up || unsent_bytes(channel) == 0 ? 0 : POLLOUT;
  return (short)(in | out);
}

bool channel_receive(struct channel *channel, struct record *record, int *passed) {
  while (channel->fd >= 0 && !channel->hung_up && channel_can_answer(channel)) {
    char *next = (char *)&channel->incoming + channel->incoming_length;
    const size_t room = sizeof channel->incoming - channel->incoming_length;
    struct passed passed_now;
    ssize_t received = message_receive_all(channel->fd, next, room, &passed_now, MSG_DONTWAIT);
    if (received < 0 && errno == EINTR) continue;
    if (received < 0 && errno == EAGAIN) {
      /* A message arrives whole, so no record is left for them. */
      if (channel->incoming_length == 0) drop_passed(channel);
      return false;
    }
    if (received <= 0) {
      log_line("the agent shut its side of the channel");
      channel->hung_up = true;
      return false;
    }
    if (passed_now.count > 0) {
      drop_passed(channel);
      channel->incoming_fds = passed_now;
    }
    channel->incoming_length += (size_t)received;
    if (channel->incoming_length < sizeof channel->incoming) continue;
    channel->incoming_length = 0;
    *record = channel->incoming;
    *passed = next_passed(channel);
    return true;
  }
  return false;
}
