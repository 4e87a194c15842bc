#define _GNU_SOURCE
#include "signals.h"

#include <signal.h>
#include <stddef.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "../../process/defaults.h"

/* The kernel discards every other signal to PID 1. */
static const int init_signals[] = {SIGCHLD, SIGTERM, SIGINT, SIGPWR};
static const int wrapper_signals[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH};

#define LENGTH(array) (sizeof(array) / sizeof(array)[0])

int signals_open(bool init_mode) {
  /* With an inherited SIG_IGN for SIGCHLD, the kernel would reap and discard the statuses. */
  reset_signals();
  signal(SIGPIPE, SIG_IGN);
  const int *numbers = init_mode ? init_signals : wrapper_signals;
  size_t count = init_mode ? LENGTH(init_signals) : LENGTH(wrapper_signals);
  sigset_t set;
  sigemptyset(&set);
  for (size_t i = 0; i < count; i++) sigaddset(&set, numbers[i]);
  if (sigprocmask(SIG_BLOCK, &set, NULL) != 0) return -1;
  return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

bool signals_next(int fd, struct signalfd_siginfo *info) {
  return read(fd, info, sizeof *info) == (ssize_t)sizeof *info;
}

bool signal_is_from_process(const struct signalfd_siginfo *info) {
  return info->ssi_code <= 0; /* SI_USER, SI_QUEUE, SI_TKILL …; the kernel's codes are positive */
}

bool signal_requests_end(int number) {
  return number == SIGTERM || number == SIGINT || number == SIGHUP || number == SIGQUIT;
}
