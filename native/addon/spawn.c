/*
 * Starts programs. The start runs on a thread of libuv's pool, because vfork(2) returns only once the child executes
 * the program. fork(2) would copy the page tables of all memory that Node maps.
 */
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
#include "napi/pool.h"

#define STANDARD_DESCRIPTORS 3

/* One program to start. */
struct spawn_work {
  struct pool_work pool;
  const char *program, *directory;
  char **command, **environment;         /* the command begins with the program's name */
  int descriptors[STANDARD_DESCRIPTORS]; /* for 0, 1 and 2 of the program; -1 is /dev/null */
  int denied;                            /* DENY_… */
  bool has_terminal;                     /* descriptor 0 becomes the controlling terminal of the program's session */
  volatile int child_errno;              /* written by the child, which shares this memory */
  int started[2];                        /* pid and pidfd */
};

/* In the child. dup2 clears close-on-exec. A given descriptor is never 0, 1 or 2: the agent uses these itself. */
static bool place_descriptors(const struct spawn_work *work) {
  int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nothing < 0) return false;
  for (int i = 0; i < STANDARD_DESCRIPTORS; i++) {
    int fd = work->descriptors[i];
    if (dup2(fd < 0 ? nothing : fd, i) < 0) return false;
  }
  return true;
}

/*
 * In the child. The program ends with the agent: the thread that starts it lives as long. A console that cannot be the
 * controlling terminal is one without job control.
 */
static void take_terminal(void) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  ioctl(STDIN_FILENO, TIOCSCTTY, 1);
}

/*
 * In the child. It shares the parent's memory until it executes the program, so it makes system calls only. Returns
 * with errno set when one fails. The oom_score_adj that a vfork child writes changes the child's value only.
 */
static void become_program(const struct spawn_work *work) {
  setsid();
  if (!reset_oom_score() || !place_descriptors(work) || chdir(work->directory) != 0) return;
  if (work->has_terminal) take_terminal();
  /* After the descriptors are placed: until execve the child may have more open than the program's limit allows. */
  if (!reset_open_files_limit() || !reset_nice()) return;
  reset_signals();
  if (!deny_calls(work->denied)) return;
  execve(work->program, work->command, work->environment);
}

/* Returns the pid once the program is executed, or -errno. */
static pid_t start(struct spawn_work *work) {
  /* No signal handler of Node may run in the child, so all signals are blocked; reset_signals unblocks them there. */
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pid_t pid = vfork();
  if (pid == 0) {
    become_program(work);
    work->child_errno = errno;
    _exit(EXIT_FAILURE);
  }
  int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (pid < 0) return -error;
  if (work->child_errno == 0) return pid;
  waitpid(pid, NULL, 0);
  return -work->child_errno;
}

static void run_spawn(struct pool_work *pool) {
  struct spawn_work *work = (struct spawn_work *)pool;
  pid_t pid = start(work);
  pool->result = pid;
  if (pid < 0) return;
  int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
  if (pidfd >= 0) {
    work->started[0] = pid;
    work->started[1] = pidfd;
    pool->pair = work->started;
    return;
  }
  pool->result = -errno;
  kill(-pid, SIGKILL);
  waitpid(pid, NULL, 0);
}

static napi_value spawn(napi_env env, napi_callback_info info) {
  struct spawn_work *work = pool_begin(env, info, sizeof *work);
  if (work == NULL) return NULL;
  struct arguments *arguments = &work->pool.arguments;
  work->program = string_argument(arguments, 0);
  work->command = strings_argument(arguments, 1);
  work->environment = strings_argument(arguments, 2);
  work->directory = string_argument(arguments, 3);
  for (int i = 0; i < STANDARD_DESCRIPTORS; i++) work->descriptors[i] = integer_argument(arguments, 4 + i);
  work->denied = integer_argument(arguments, 7);
  work->has_terminal = boolean_argument(arguments, 8);
  return pool_queue(env, &work->pool, run_spawn);
}

/* Returns the wait status of a child that has ended, or -EAGAIN while it runs. */
static napi_value reap(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  pid_t pid = integer_argument(&arguments, 0);
  if (arguments.bad) return NULL;
  int status;
  pid_t reaped = waitpid(pid, &status, WNOHANG);
  if (reaped < 0) return call_result(env, -1);
  return integer_value(env, reaped == 0 ? -EAGAIN : status);
}

const struct addon_function spawn_functions[] = {
    {"spawn", spawn},
    {"reap", reap},
    {NULL, NULL},
};
