#define _GNU_SOURCE
#include "leave.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../init/clock.h"

void leave_keep(struct broker *broker, const struct connection *connection) {
  if (!broker->is_stopped || broker->kept_count == KEPT_CLIENTS || !connection->has_called) return;
  int fd = fcntl(connection->client.fd, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return;
  shutdown(fd, SHUT_WR);
  broker->kept[broker->kept_count++] = fd;
}

void leave_undo(struct broker *broker) {
  while (broker->kept_count > 0) close(broker->kept[--broker->kept_count]);
}

void leave_clients(struct broker *broker, int timeout_ms) {
  broker->is_stopped = true;
  for (uint32_t i = 0; i < broker->places; i++)
    if (broker->connections[i].id != 0) leave_keep(broker, &broker->connections[i]);
  struct pollfd polled[KEPT_CLIENTS];
  for (uint32_t i = 0; i < broker->kept_count; i++)
    polled[i] = (struct pollfd){.fd = broker->kept[i], .events = POLLRDHUP};
  const int64_t end_ms = monotonic_ms() + timeout_ms;
  for (uint32_t open = broker->kept_count; open > 0;) {
    int64_t left_ms = end_ms - monotonic_ms();
    if (left_ms <= 0 || poll(polled, broker->kept_count, (int)left_ms) < 0) return;
    for (uint32_t i = 0; i < broker->kept_count; i++) {
      if (polled[i].revents == 0) continue;
      polled[i].fd = -1;
      open--;
    }
  }
}
