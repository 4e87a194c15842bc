#include "watch.h"

#include <sys/epoll.h>
#include <unistd.h>

bool watch_set(struct holder *holder, struct watch *watch, enum subject subject, uint32_t index, uint32_t events) {
  if (watch->is_added && watch->events == events) return true;
  struct epoll_event event = {.events = events, .data.u64 = (uint64_t)subject << 32 | index};
  if (epoll_ctl(holder->epoll, watch->is_added ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, watch->fd, &event) != 0) return false;
  watch->is_added = true;
  watch->events = events;
  return true;
}

/* close(2) is not enough: epoll reports a socket as long as another process has it open. */
void watch_close(struct holder *holder, struct watch *watch) {
  if (watch->fd < 0) return;
  if (watch->is_added) epoll_ctl(holder->epoll, EPOLL_CTL_DEL, watch->fd, NULL);
  close(watch->fd);
  *watch = (struct watch){.fd = -1};
}
