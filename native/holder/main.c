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
#include <unistd.h>

#include "../process/defaults.h"
#include "children/child.h"
#include "children/lease.h"
#include "children/log-file.h"
#include "children/namespace.h"
#include "children/spawn.h"
#include "children/walls.h"
#include "command.h"
#include "connection.h"
#include "listen.h"
#include "relay.h"
#include "streams/client.h"
#include "streams/source.h"
#include "watch.h"
#include "words.h"

#define USAGE \
  "usage: holder FOLDER    hold an instance's processes in a PID namespace, and serve FOLDER/holder.sock\n" \
  "Waits for a line `hold [CGROUP...]` on its standard input, a socket, which is its first connection then. The " \
  "holder and all that it starts are in the cgroups with these folders: one of each hierarchy. Exits are told " \
  "there. Until the line comes, it touches nothing. Until it has greeted, it ends with that socket; with `leash` for " \
  "`hold`, always.\n"

#define HOLD "hold"
#define LEASH "leash"

#define EXIT_USAGE 2

#define EVENTS 64

/* For a descriptor, when none was left for a connection. */
#define ACCEPT_RETRY_MS 100

static struct holder state;

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
    case SUBJECT_RELAY:
      relay_event(holder, index);
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

/* Tells the starter what failed, and ends this process. */
static noreturn void fail(const char *code, const char *what, int error) {
  struct connection starter = {.socket.fd = STDIN_FILENO};
  refuse(&state, &starter, code, "%s: %s", what, strerrorname_np(error));
  _exit(EXIT_FAILURE);
}

static noreturn void fail_start(const char *what) {
  fail(errno == ENOSPC ? "RESOURCE_EXHAUSTED" : "UNAVAILABLE", what, errno);
}

/* Returns whether the starter wants a holder: its words are in `holder` then. It sends one line, and waits for the greeting. */
static bool await_order(struct holder *holder) {
  size_t length = 0;
  while (length == 0 || holder->line[length - 1] != '\n') {
    ssize_t count = read(STDIN_FILENO, holder->line + length, LINE_BYTES_MAX - length);
    if (count <= 0) return false;
    length += (size_t)count;
  }
  holder->line[length - 1] = '\0';
  if (words_split(holder->line, holder->words, WORDS_MAX) < 1) return false;
  return strcmp(holder->words[0], HOLD) == 0 || strcmp(holder->words[0], LEASH) == 0;
}

/* The holder has no terminal, and its children inherit nothing. Returns the connection to the starter, or -1. */
static int take_starter(int null) {
  int starter = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
    if (dup2(null, fd) < 0) return -1;
  close(null);
  return starter < 0 || fcntl(starter, F_SETFL, O_NONBLOCK) != 0 ? -1 : starter;
}

/* Runs as init of the namespace. */
static noreturn void hold(struct holder *holder, int null) {
  const char *step;
  const bool is_leash = strcmp(holder->words[0], LEASH) == 0;
  if (!prepare(holder, &step)) fail_start(step);
  int starter = take_starter(null);
  if (starter < 0) _exit(EXIT_FAILURE);
  connection_open(holder, starter);
  holder->connections[0].is_leash = is_leash;
  holder->connections[0].wants_exits = true;
  /* Nobody knows of this holder. */
  if (holder->has_closed) _exit(EXIT_FAILURE);
  serve(holder);
}

/* The holder keeps the lock for its life. */
static void enter(const char *path) {
  if (chdir(path) != 0) fail_start(path);
  int folder = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0 && flock(folder, LOCK_EX | LOCK_NB) == 0) return;
  if (errno == EWOULDBLOCK) fail("ALREADY_EXISTS", path, errno);
  fail_start(path);
}

int main(int argc, char *argv[]) {
  if (argc != 2) {
    dprintf(STDERR_FILENO, USAGE);
    return EXIT_USAGE;
  }
  close_range(STDERR_FILENO + 1, ~0U, 0);
  /* What would fail is told once a holder is wanted. */
  const bool sees_itself = outer_pid() == getpid();
  walls_prepare();
  const int error = namespace_make() ? 0 : errno;
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (!await_order(&state)) return EXIT_SUCCESS;
  /* The starter would not find the pids in its own /proc. */
  if (!sees_itself) fail("FAILED_PRECONDITION", "/proc: not mounted, or of another PID namespace", ESRCH);
  if (error != 0) fail("FAILED_PRECONDITION", "PID namespace: cannot be made", error);
  if (null < 0) fail_start("/dev/null");
  enter(argv[1]);
  const char *failed = "fork into the PID namespace";
  pid_t pid = fork_into_cgroups(state.words + 1, &failed);
  if (pid < 0) fail_start(failed);
  if (pid == 0) hold(&state, null);
  _exit(EXIT_SUCCESS);
}
