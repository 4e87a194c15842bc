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

#define CHANNEL_FD 3
#define EXIT_CANNOT_EXECUTE 127

bool agent_prepare(struct agent *agent) {
  void *page = mmap(NULL, sizeof *agent->start_errno, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  *agent = (struct agent){.start_errno = page};
  return true;
}

/* The longest of the words that vminit appends: a stored descriptor's `NAME=FD`. */
#define WORD_BYTES (RECORD_NAME_BYTES + sizeof "=2147483647")

/* command + `--channel 3 --restarts N`, `--stored NAME=FD` for each stored descriptor, and `--init`. */
static char **full_command(const struct agent_launch *launch) {
  static char channel[WORD_BYTES], restarts[WORD_BYTES], stored[STORE_CAPACITY][WORD_BYTES];
  snprintf(channel, WORD_BYTES, "%d", CHANNEL_FD);
  snprintf(restarts, WORD_BYTES, "%u", launch->restarts);
  size_t count = 0;
  while (launch->command[count] != NULL) count++;
  char **argv = calloc(count + 2 * (2 + STORE_CAPACITY) + 2, sizeof *argv);
  if (argv == NULL) return NULL;
  memcpy(argv, launch->command, count * sizeof *argv);
  char **next = argv + count;
  *next++ = "--channel";
  *next++ = channel;
  *next++ = "--restarts";
  *next++ = restarts;
  for (unsigned i = 0; i < launch->store->count; i++) {
    snprintf(stored[i], WORD_BYTES, "%s=%u", launch->store->entries[i].name, CHANNEL_FD + 1 + i);
    *next++ = "--stored";
    *next++ = stored[i];
  }
  if (launch->init_mode) *next++ = "--init";
  return argv;
}

/* Makes the channel descriptor 3 and the stored ones 4, 5 and so on, and closes every other one above stderr. */
static bool place_descriptors(const struct agent_launch *launch) {
  int given[1 + STORE_CAPACITY];
  int count = 0;
  given[count++] = launch->channel_fd;
  for (unsigned i = 0; i < launch->store->count; i++) given[count++] = launch->store->entries[i].fd;
  /* First out of the way: one may have the number that another is to get. */
  for (int i = 0; i < count; i++)
    if ((given[i] = fcntl(given[i], F_DUPFD, CHANNEL_FD + count)) < 0) return false;
  for (int i = 0; i < count; i++)
    if (dup2(given[i], CHANNEL_FD + i) < 0) return false;
  return close_range(CHANNEL_FD + (unsigned)count, ~0U, 0) == 0;
}

/* In the child: everything up to exec. Returns with errno set when something failed. */
static void become_agent(const struct agent_launch *launch) {
  char **argv = full_command(launch);
  if (argv == NULL || !place_descriptors(launch)) return;
  if (launch->init_mode) {
    /*
     * The agent owns the console: if vminit did, Ctrl-C would reach it and look like Ctrl-Alt-Del. The argument 1 takes
     * the console from the session of an earlier agent. A console that is not a terminal is ignored.
     */
    setsid();
    ioctl(STDIN_FILENO, TIOCSCTTY, 1);
    setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
  }
  reset_signals();
  execvp(argv[0], argv);
}

bool agent_start(struct agent *agent, const struct agent_launch *launch) {
  *agent->start_errno = 0;
  pid_t pid = fork();
  if (pid < 0) return false;
  if (pid == 0) {
    become_agent(launch);
    *agent->start_errno = errno;
    _exit(EXIT_CANNOT_EXECUTE);
  }
  agent->pid = pid;
  return true;
}
