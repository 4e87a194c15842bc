#include "watch.h"

#include <sys/epoll.h>
#include <unistd.h>

bool watch_set(struct broker *broker, struct watch *watch, uint32_t events) {
  if (watch->fd < 0 || (watch->is_added && watch->events == events)) return true;
  struct epoll_event event = {.events = events, .data.ptr = watch};
  if (epoll_ctl(broker->epoll, watch->is_added ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, watch->fd, &event) != 0) return false;
  watch->is_added = true;
  watch->events = events;
  return true;
}

/* close(2) is not enough: epoll reports a socket as long as another process has it open. */
void watch_remove(struct broker *broker, struct watch *watch) {
  if (watch->is_added) epoll_ctl(broker->epoll, EPOLL_CTL_DEL, watch->fd, NULL);
  watch->is_added = false;
}

void watch_close(struct broker *broker, struct watch *watch) {
  if (watch->fd < 0) return;
  watch_remove(broker, watch);
  close(watch->fd);
  watch->fd = -1;
}
