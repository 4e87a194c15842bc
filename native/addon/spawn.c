/* Starts programs by vfork(2), which copies no page tables. It returns after execve(2), so it runs on a pool thread. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../process/defaults.h"
#include "call-filter.h"
#include "functions.h"
#include "napi/call.h"

#define STANDARD_DESCRIPTORS 3

struct program {
  const char *path, *directory;
  char **command, **environment;         /* the command begins with the program's name */
  int descriptors[STANDARD_DESCRIPTORS]; /* for 0, 1 and 2 of the program; -1 is /dev/null */
  int denied;
  bool has_terminal;        /* descriptor 0 becomes the controlling terminal of the program's session */
  volatile int child_errno; /* written by the child, which shares this memory */
};

/* Runs in the child. dup2(2) clears close-on-exec. A given descriptor is above 2, because the agent uses 0 to 2. */
static bool place_descriptors(const struct program *program) {
  int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nothing < 0) return false;
  for (int i = 0; i < STANDARD_DESCRIPTORS; i++) {
    int fd = program->descriptors[i];
    if (dup2(fd < 0 ? nothing : fd, i) < 0) return false;
  }
  return true;
}

/* Runs in the child. PR_SET_PDEATHSIG kills the program with its starting thread, which lives as long as the agent. */
static void take_terminal(void) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  ioctl(STDIN_FILENO, TIOCSCTTY, 1);
}

/*
 * Runs in the child, which shares the parent's memory until execve(2): it makes system calls only. Returns with errno
 * set on failure. The oom_score_adj that a vfork child writes changes the child's value only.
 */
static void become_program(const struct program *program) {
  setsid();
  if (!reset_oom_score() || !place_descriptors(program) || chdir(program->directory) != 0) return;
  if (program->has_terminal) take_terminal();
  /* After the descriptors are placed, because the child may have more open than the program's limit allows. */
  if (!reset_open_files_limit() || !reset_nice()) return;
  reset_signals();
  if (!deny_calls(program->denied)) return;
  execve(program->path, program->command, program->environment);
}

/* Returns the pid once the program is executed, or -1 with errno set. */
static pid_t start(struct program *program) {
  /* No signal handler of Node may run in the child, so all signals are blocked; reset_signals unblocks them there. */
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pid_t pid = vfork();
  if (pid == 0) {
    become_program(program);
    program->child_errno = errno;
    _exit(EXIT_FAILURE);
  }
  int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (pid > 0 && program->child_errno == 0) return pid;
  if (pid > 0) {
    error = program->child_errno;
    waitpid(pid, NULL, 0);
  }
  errno = error;
  return -1;
}

static int64_t spawn(struct call *call) {
  const union argument *given = call->given;
  struct program program = {
      .path = given[0].string,
      .command = given[1].strings,
      .environment = given[2].strings,
      .directory = given[3].string,
      .descriptors = {given[4].integer, given[5].integer, given[6].integer},
      .denied = given[7].integer,
      .has_terminal = given[8].integer,
  };
  call->pair[0] = start(&program);
  if (call->pair[0] == -1) return -1;
  call->pair[1] = (int)syscall(SYS_pidfd_open, call->pair[0], 0);
  if (call->pair[1] == -1) {
    int error = errno;
    kill(-call->pair[0], SIGKILL);
    waitpid(call->pair[0], NULL, 0);
    errno = error;
  }
  return pair_made(call, call->pair[1]);
}

/* Returns the wait status of a child that has ended, or -EAGAIN while it runs. */
static int64_t reap(struct call *call) {
  int status;
  pid_t reaped = waitpid(call->given[0].integer, &status, WNOHANG);
  if (reaped < 0) return -1;
  return reaped == 0 ? -EAGAIN : status;
}

const struct addon_function spawn_functions[] = {
    {"spawn", "sllsiiiib", spawn, true},
    {"reap", "i", reap, false},
    {0},
};
