#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdnoreturn.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../process/defaults.h"
#include "children/child.h"
#include "children/lease.h"
#include "children/log-file.h"
#include "children/namespace.h"
#include "children/spawn.h"
#include "command.h"
#include "connection.h"
#include "listen.h"
#include "streams/client.h"
#include "streams/source.h"
#include "watch.h"

#define USAGE \
  "usage: holder FOLDER [CGROUP...]    hold an instance's processes in a PID namespace, and serve " \
  "FOLDER/holder.sock\n" \
  "The holder and all that it starts are in the cgroups with these folders: one of each hierarchy. " \
  "Prints `ready PID START` and returns once the holder runs; PID and START are as in /proc/PID/stat.\n"

#define EXIT_USAGE 2
#define EXIT_NO_NAMESPACE 3
#define EXIT_HELD 4

#define EVENTS 64

/* For a descriptor, when none was left for a connection. */
#define ACCEPT_RETRY_MS 100

static struct holder state;

static int fail(const char *what) {
  dprintf(STDERR_FILENO, "%s: %s\n", what, strerrorname_np(errno));
  return EXIT_FAILURE;
}

/* Field 22 of proc(5). */
static bool read_start_time(unsigned long long *ticks) {
  char text[1024];
  int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  if (fd >= 0) close(fd);
  if (length <= 0) return false;
  text[length] = '\0';
  const char *place = strrchr(text, ')');
  for (int field = 2; place != NULL && field < 22; field++) place = strchr(place + 1, ' ');
  return place != NULL && sscanf(place, " %llu", ticks) == 1;
}

/* Also of the children: the vsock daemon and virtiofsd have a descriptor for each connection and file of the guest. */
static bool raise_open_files(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

static bool open_signals(struct holder *holder) {
  reset_signals();
  signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  if (sigprocmask(SIG_BLOCK, &set, NULL) != 0) return false;
  struct watch signals = {.fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC)};
  holder->signals = signals.fd;
  return signals.fd >= 0 && watch_set(holder, &signals, SUBJECT_SIGNALS, 0, EPOLLIN);
}

static bool open_listener(struct holder *holder) {
  /* The lock shows that no living holder has it. */
  if (unlink("holder.sock") != 0 && errno != ENOENT) return false;
  holder->listener = (struct watch){.fd = listen_on("holder.sock", 0600)};
  return holder->listener.fd >= 0 && watch_set(holder, &holder->listener, SUBJECT_LISTENER, 0, EPOLLIN);
}

/* Returns false with errno set and the failed step named. */
static bool prepare(struct holder *holder, const char **step) {
  for (int i = 0; i < CHILDREN_MAX; i++) holder->children[i].log.fd = -1;
  holder->memory = -1;
  holder->lease_timer.fd = -1;
  umask(077);
  *step = "/proc";
  holder->outer_pid = outer_pid();
  if (holder->outer_pid == 0 || !read_start_time(&holder->start_time)) return false;
  *step = "session";
  if (setsid() < 0 || !raise_open_files()) return false;
  *step = "epoll";
  holder->epoll = epoll_create1(EPOLL_CLOEXEC);
  if (holder->epoll < 0 || !open_signals(holder)) return false;
  *step = "exits";
  if (!exits_open(holder)) return false;
  *step = "holder.sock";
  return open_listener(holder);
}

static void on_connection(struct holder *holder, uint32_t index, uint32_t events) {
  struct connection *connection = &holder->connections[index];
  switch (connection->mode) {
    case CONNECTION_COMMANDS:
    case CONNECTION_LISTS_RINGS:
      commands_read(holder, connection, events);
      return;
    case CONNECTION_ATTACHED:
      client_event(holder, connection, events);
      return;
    case CONNECTION_UNUSED:
    case CONNECTION_CLOSED:
      return;
  }
}

static void on_event(struct holder *holder, enum subject subject, uint32_t index, uint32_t events) {
  struct signalfd_siginfo info;
  switch (subject) {
    case SUBJECT_LISTENER:
      connections_accept(holder);
      return;
    case SUBJECT_SIGNALS:
      while (read(holder->signals, &info, sizeof info) > 0) holder->may_reap = true;
      return;
    case SUBJECT_CONNECTION:
      on_connection(holder, index, events);
      return;
    case SUBJECT_PEER:
      if (holder->rings[index].peer.fd >= 0) source_event(holder, &holder->rings[index], events);
      return;
    case SUBJECT_PORT:
      if (holder->rings[index].port.fd >= 0) port_accept(holder, &holder->rings[index]);
      return;
    case SUBJECT_LOG:
      if (holder->children[index].log.fd >= 0) log_read(holder, &holder->children[index]);
      return;
    case SUBJECT_LEASE:
      lease_event(holder);
      return;
  }
}

static int next_timeout_ms(struct holder *holder) {
  int timeout_ms = sources_resume(holder);
  if (holder->may_reap) return 0;
  if (holder->accepts_later && (timeout_ms < 0 || timeout_ms > ACCEPT_RETRY_MS)) return ACCEPT_RETRY_MS;
  return timeout_ms;
}

static noreturn void serve(struct holder *holder) {
  struct epoll_event events[EVENTS];
  for (;;) {
    int count = epoll_wait(holder->epoll, events, EVENTS, next_timeout_ms(holder));
    for (int i = 0; i < count; i++) {
      enum subject subject = (enum subject)(events[i].data.u64 >> 32);
      on_event(holder, subject, (uint32_t)events[i].data.u64, events[i].events);
    }
    if (holder->may_reap) children_reap(holder);
    connections_clean(holder);
    if (holder->accepts_later) {
      holder->accepts_later = false;
      watch_set(holder, &holder->listener, SUBJECT_LISTENER, 0, EPOLLIN);
    }
  }
}

/* The holder has no terminal and keeps none of the starter's pipes. */
static bool leave_starter(int null) {
  return dup2(null, STDIN_FILENO) >= 0 && dup2(null, STDOUT_FILENO) >= 0 && dup2(null, STDERR_FILENO) >= 0;
}

/* Runs as init of the namespace. */
static int hold(int started, int null) {
  const char *step;
  if (!prepare(&state, &step)) return fail(step);
  dprintf(STDOUT_FILENO, "ready %d %llu\n", state.outer_pid, state.start_time);
  if (!leave_starter(null)) return fail("/dev/null");
  close(null);
  ssize_t told = write(started, "", 1);
  (void)told;
  close(started);
  serve(&state);
}

/* Returns the exit status of the starter. */
static int await_start(int started, pid_t pid) {
  char byte;
  if (read(started, &byte, 1) == 1) _exit(EXIT_SUCCESS);
  int status;
  if (waitpid(pid, &status, 0) < 0) return fail("wait for the holder");
  return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
}

static int start(char *const *cgroups) {
  /* The starter would not find the pids in its own /proc. */
  if (outer_pid() != getpid()) {
    dprintf(STDERR_FILENO, "/proc: not mounted, or of another PID namespace\n");
    return EXIT_NO_NAMESPACE;
  }
  int started[2];
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0 || pipe2(started, O_CLOEXEC) != 0) return fail("/dev/null");
  if (!namespace_make()) {
    dprintf(STDERR_FILENO, "PID namespace: cannot be made: %s\n", strerrorname_np(errno));
    return EXIT_NO_NAMESPACE;
  }
  const char *failed = "fork into the PID namespace";
  pid_t pid = fork_into_cgroups(cgroups, &failed);
  if (pid < 0) return fail(failed);
  if (pid == 0) return hold(started[1], null);
  close(started[1]);
  return await_start(started[0], pid);
}

int main(int argc, char *argv[]) {
  if (argc < 2) {
    dprintf(STDERR_FILENO, USAGE);
    return EXIT_USAGE;
  }
  if (close_range(STDERR_FILENO + 1, ~0U, 0) != 0 || chdir(argv[1]) != 0) return fail(argv[1]);
  /* The holder keeps the lock for its life. */
  int folder = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0 || flock(folder, LOCK_EX | LOCK_NB) != 0) {
    int error = errno;
    fail(argv[1]);
    return error == EWOULDBLOCK ? EXIT_HELD : EXIT_FAILURE;
  }
  return start(argv + 2);
}
