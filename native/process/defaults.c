#define _GNU_SOURCE
#include "defaults.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#define OPEN_FILES_SOFT 1024
#define OPEN_FILES_HARD 524288

void reset_signals(void) {
  /* Fails for SIGKILL, SIGSTOP and the C library's own signals, which have their default action. */
  for (int number = 1; number < NSIG; number++) signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
}

bool reset_open_files_limit(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  if (limit.rlim_max > OPEN_FILES_HARD) limit.rlim_max = OPEN_FILES_HARD;
  limit.rlim_cur = limit.rlim_max < OPEN_FILES_SOFT ? limit.rlim_max : OPEN_FILES_SOFT;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

bool reset_oom_score(void) {
  int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t written = write(fd, "0", 1);
  int error = errno;
  close(fd);
  errno = error;
  /* EACCES: an unprivileged process cannot lower the score that it inherited. */
  return written == 1 || error == EACCES;
}

bool reset_nice(void) {
  return getpriority(PRIO_PROCESS, 0) >= 0 || setpriority(PRIO_PROCESS, 0, 0) == 0;
}
