/*
 * Starting programs. On a thread of libuv's pool, for whoever starts a program waits until the new process has got a
 * CPU and executes it; and by vfork(2), for fork(2) copies the page tables of all that Node has mapped.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../process/defaults.h"
#include "addon.h"
#include "arguments.h"

#define STANDARD_DESCRIPTORS 3

/* One program on its way. */
struct spawn_work {
  struct arguments arguments; /* owns the strings */
  const char *program, *directory;
  char **command, **environment; /* the command begins with the program's name */
  int descriptors[STANDARD_DESCRIPTORS]; /* for 0, 1 and 2 of the program; -1 is /dev/null */
  volatile int child_errno;              /* set by the child, in our memory */
  int result[2];                         /* pid and pidfd; or -errno alone */
  napi_async_work work;
  napi_deferred deferred;
};

/* In the child. dup2 clears close-on-exec; what is given is never 0, 1 or 2 itself, for those are in use here. */
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
 * In the child, which shares our memory until it executes the program: system calls only. Returns when one failed,
 * with errno set. (The kernel keeps an oom_score_adj that a vfork child writes to the child.)
 */
static void become_program(const struct spawn_work *work) {
  setsid();
  if (!reset_oom_score() || !place_descriptors(work) || chdir(work->directory) != 0) return;
  /* Last, for until they are closed by execve we may have more open than the program may. */
  if (!reset_open_files_limit() || !reset_nice()) return;
  reset_signals();
  execve(work->program, work->command, work->environment);
}

/* The pid, or -errno; the program has been executed. */
static pid_t start(struct spawn_work *work) {
  /* None of our handlers may run in the child. It takes the blocked signals back itself. */
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

static void run_spawn(napi_env env, void *data) {
  (void)env;
  struct spawn_work *work = data;
  pid_t pid = start(work);
  work->result[0] = pid;
  if (pid < 0) return;
  work->result[1] = (int)syscall(SYS_pidfd_open, pid, 0);
  if (work->result[1] >= 0) return;
  work->result[0] = -errno;
  kill(-pid, SIGKILL);
  waitpid(pid, NULL, 0);
}

static void release(struct spawn_work *work) {
  arguments_release(&work->arguments);
  free(work);
}

static void complete(napi_env env, napi_status status, void *data) {
  struct spawn_work *work = data;
  int result = status == napi_ok ? work->result[0] : -ECANCELED;
  napi_resolve_deferred(env, work->deferred,
                        result < 0 ? integer_value(env, result) : pair_value(env, work->result));
  napi_delete_async_work(env, work->work);
  release(work);
}

static napi_value spawn(napi_env env, napi_callback_info info) {
  struct spawn_work *work = calloc(1, sizeof *work);
  if (work == NULL) {
    napi_throw_error(env, NULL, "out of memory");
    return NULL;
  }
  arguments_read(&work->arguments, env, info);
  work->program = string_argument(&work->arguments, 0);
  work->command = strings_argument(&work->arguments, 1);
  work->environment = strings_argument(&work->arguments, 2);
  work->directory = string_argument(&work->arguments, 3);
  for (int i = 0; i < STANDARD_DESCRIPTORS; i++)
    work->descriptors[i] = integer_argument(&work->arguments, 4 + i);
  napi_value promise, name;
  if (work->arguments.bad) {
    release(work);
    return NULL;
  }
  if (napi_create_string_utf8(env, "spawn", NAPI_AUTO_LENGTH, &name) != napi_ok ||
      napi_create_async_work(env, NULL, name, run_spawn, complete, work, &work->work) != napi_ok) {
    release(work);
    napi_throw_error(env, NULL, "no work can be queued");
    return NULL;
  }
  napi_create_promise(env, &work->deferred, &promise);
  napi_queue_async_work(env, work->work);
  return promise;
}

/* The wait status of a child that has ended; -EAGAIN while it lives. */
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
