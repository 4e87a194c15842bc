#define _GNU_SOURCE
#include "lease.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "../watch.h"

#define SECOND_NS 1000000000ull

uint64_t boot_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

static bool set_timer(struct holder *holder, uint64_t until_ns) {
  if (holder->lease_timer.fd < 0) {
    holder->lease_timer = (struct watch){.fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC)};
    if (holder->lease_timer.fd < 0) return false;
  }
  const struct timespec moment = {(time_t)(until_ns / SECOND_NS), (long)(until_ns % SECOND_NS)};
  const struct itimerspec once = {.it_value = moment};
  return timerfd_settime(holder->lease_timer.fd, TFD_TIMER_ABSTIME, &once, NULL) == 0 &&
         watch_set(holder, &holder->lease_timer, SUBJECT_LEASE, 0, EPOLLIN);
}

bool lease_set(struct holder *holder, uint64_t until_ns) {
  const uint64_t now_ns = boot_ns();
  if (lease_has_ended(holder) || until_ns <= now_ns) {
    errno = ETIME;
    return false;
  }
  if (until_ns - now_ns > LEASE_SECONDS_MAX * SECOND_NS) {
    errno = ERANGE;
    return false;
  }
  if (!set_timer(holder, until_ns)) return false;
  holder->lease_until_ns = until_ns;
  return true;
}

bool lease_has_ended(struct holder *holder) {
  if (holder->lease_until_ns == 0 || holder->lease_has_ended) return holder->lease_has_ended;
  if (boot_ns() < holder->lease_until_ns) return false;
  holder->lease_has_ended = true;
  /* The holder is init of the namespace, so these are its children and theirs, and no others. */
  kill(-1, SIGKILL);
  return true;
}

void lease_event(struct holder *holder) {
  uint64_t ends;
  ssize_t length = read(holder->lease_timer.fd, &ends, sizeof ends);
  (void)length;
  lease_has_ended(holder);
}
