#define _GNU_SOURCE
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../process/defaults.h"
#include "../log.h"

/* The agent's descriptors. Stored ones follow from FIRST_STORED_FD on. */
#define CHANNEL_FD 3
#define STORED_LIST_FD 4
#define BROKER_FD 5
#define FIRST_STORED_FD 6
#define TEXT_OF(number) TEXT_OF_VALUE(number)
#define TEXT_OF_VALUE(value) #value

#define EXIT_CANNOT_EXECUTE 127

/* Holds the store twice, because the child moves the descriptors. */
#define OPEN_FILES 65536

#define OPEN_FILES_SPARE 4096

#define NUMBER_BYTES sizeof "4294967295"

static bool prepare_arguments(struct agent *agent, char *const command[]) {
  static char restarts[NUMBER_BYTES];
  char *appended[] = {"--channel", TEXT_OF(CHANNEL_FD), "--restarts",
                      restarts,    "--stored-list",     TEXT_OF(STORED_LIST_FD),
                      "--broker",  TEXT_OF(BROKER_FD),  "--init"};
  size_t count = 0;
  while (command[count] != NULL) count++;
  size_t more = sizeof appended / sizeof appended[0] - (agent->init_mode ? 0 : 1);
  agent->arguments = calloc(count + more + 1, sizeof *agent->arguments);
  if (agent->arguments == NULL) return false;
  memcpy(agent->arguments, command, count * sizeof *command);
  memcpy(agent->arguments + count, appended, more * sizeof *appended);
  agent->restarts_text = restarts;
  return true;
}

static void raise_open_files(const struct rlimit *before) {
  struct rlimit raised = *before;
  if (raised.rlim_cur < OPEN_FILES) raised.rlim_cur = OPEN_FILES;
  if (raised.rlim_max < raised.rlim_cur) raised.rlim_max = raised.rlim_cur;
  if (setrlimit(RLIMIT_NOFILE, &raised) == 0) return;
  /* Without privileges only the soft limit can be raised. */
  raised.rlim_cur = raised.rlim_max = before->rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &raised) != 0) log_line("the limit of open files: %s", strerror(errno));
}

bool agent_prepare(struct agent *agent, char *const command[], bool init_mode) {
  void *page = mmap(NULL, sizeof *agent->start_errno, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  *agent = (struct agent){.start_errno = page, .init_mode = init_mode};
  if (getrlimit(RLIMIT_NOFILE, &agent->open_files) != 0) return false;
  raise_open_files(&agent->open_files);
  if (init_mode && setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1) != 0) return false;
  return prepare_arguments(agent, command);
}

/* Makes a memfd with a line `NAME FD` for each stored descriptor. Returns it, or -1. */
static int list_stored(const struct store *store) {
  int fd = memfd_create("stored-list", MFD_CLOEXEC);
  if (fd < 0) return -1;
  char lines[4096];
  size_t length = 0;
  for (unsigned i = 0; i < store->count; i++) {
    length +=
        (size_t)snprintf(lines + length, sizeof lines - length, "%s %u\n", store->entries[i].name, FIRST_STORED_FD + i);
    bool full = sizeof lines - length < RECORD_NAME_BYTES + NUMBER_BYTES + 1;
    if (!full && i + 1 < store->count) continue;
    if (write(fd, lines, length) != (ssize_t)length) return -1;
    length = 0;
  }
  return lseek(fd, 0, SEEK_SET) == 0 ? fd : -1;
}

static bool place_descriptors(const struct agent_launch *launch) {
  static int given[FIRST_STORED_FD - CHANNEL_FD + STORE_CAPACITY];
  int count = 0;
  given[count++] = launch->channel_fd;
  given[count++] = list_stored(launch->store);
  given[count++] = launch->broker_fd;
  for (unsigned i = 0; i < launch->store->count; i++) given[count++] = launch->store->entries[i].fd;
  /* Move all up first, because one may have the number that another needs. */
  for (int i = 0; i < count; i++)
    if ((given[i] = fcntl(given[i], F_DUPFD, CHANNEL_FD + count)) < 0) return false;
  for (int i = 0; i < count; i++)
    if (dup2(given[i], CHANNEL_FD + i) < 0) return false;
  return close_range(CHANNEL_FD + (unsigned)count, ~0U, 0) == 0;
}

/* Sets vminit's original limit, or a higher one if the stored descriptors would leave little room. */
static bool limit_open_files(const struct agent *agent, const struct store *store) {
  struct rlimit limit = agent->open_files;
  rlim_t given = FIRST_STORED_FD + store->count;
  if (given > limit.rlim_cur / 2) limit.rlim_cur = given + OPEN_FILES_SPARE;
  if (limit.rlim_max < limit.rlim_cur) limit.rlim_max = limit.rlim_cur;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

/* Runs in the child. Returns with errno set on failure. */
static void become_agent(const struct agent *agent, const struct agent_launch *launch) {
  if (!place_descriptors(launch) || !limit_open_files(agent, launch->store)) return;
  if (agent->init_mode) {
    /*
     * The agent owns the console: if vminit did, Ctrl-C would reach it and look like Ctrl-Alt-Del. The argument 1 takes
     * the console from an earlier agent's session. A console that is no terminal is ignored.
     */
    setsid();
    ioctl(STDIN_FILENO, TIOCSCTTY, 1);
  }
  reset_signals();
  execvp(agent->arguments[0], agent->arguments);
}

bool agent_start(struct agent *agent, const struct agent_launch *launch) {
  *agent->start_errno = 0;
  snprintf(agent->restarts_text, NUMBER_BYTES, "%u", launch->restarts);
  pid_t pid = fork();
  if (pid < 0) return false;
  if (pid == 0) {
    become_agent(agent, launch);
    *agent->start_errno = errno;
    _exit(EXIT_CANNOT_EXECUTE);
  }
  agent->pid = pid;
  return true;
}
