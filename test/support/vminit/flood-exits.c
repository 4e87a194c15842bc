/*
 * Agents below a flood of exits. The first agent registers an orphan, floods vminit with unread exits of others, has the
 * orphan exit with 42, and prints vminit's memory before and after. The second agent prints the exits that it is told of.
 * The argument is the size of the flood.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "channel/record.h"

#define CHANNEL_FD 3
#define BATCH 500
#define LIMIT_SECONDS 60

static void print_memory(void) {
  char path[64], line[256];
  snprintf(path, sizeof path, "/proc/%d/smaps_rollup", getppid());
  FILE *file = fopen(path, "r");
  int kilobytes = 0;
  while (file != NULL && fgets(line, sizeof line, file) != NULL) sscanf(line, "Rss: %d", &kilobytes);
  printf("rss %d\n", kilobytes);
}

static void wait_for(pid_t child) {
  while (waitpid(child, NULL, 0) < 0 && errno == EINTR) continue;
}

/* Makes an orphan that exits with 42 once the returned descriptor is closed. Sets `*pid`. */
static int make_orphan(pid_t *pid) {
  int told[2], release[2];
  if (pipe(told) != 0 || pipe(release) != 0) exit(2);
  pid_t child = fork();
  if (child == 0) {
    pid_t orphan = fork();
    if (orphan > 0) _exit(write(told[1], &orphan, sizeof orphan) != sizeof orphan);
    char byte;
    close(release[1]);
    while (read(release[0], &byte, 1) > 0) continue;
    _exit(42);
  }
  wait_for(child);
  if (read(told[0], pid, sizeof *pid) != sizeof *pid) exit(2);
  return release[1];
}

static void flood(int count) {
  for (; count > 0; count -= BATCH) {
    pid_t child = fork();
    for (int i = 0; child == 0 && i < BATCH && i < count; i++)
      if (fork() == 0) _exit(0);
    if (child == 0) _exit(0);
    wait_for(child);
  }
}

static int flood_vminit(int count) {
  struct record keep = {.version = RECORD_VERSION, .kind = RECORD_KEEP_EXIT};
  pid_t orphan;
  int release = make_orphan(&orphan);
  keep.pid = orphan;
  if (send(CHANNEL_FD, &keep, sizeof keep, 0) != sizeof keep) return 2;
  print_memory();
  flood(count);
  close(release);
  while (kill(orphan, 0) == 0) poll(NULL, 0, 10);
  print_memory();
  return 1;
}

static int read_backlog(int count) {
  struct record record;
  int exits = 0, lost = 0, kept = 0;
  bool ended = false;
  while (!ended || exits + lost < count) {
    if (recv(CHANNEL_FD, &record, sizeof record, MSG_WAITALL) != sizeof record) return 2;
    if (record.kind == RECORD_BACKLOG_END) ended = true;
    if (record.kind == RECORD_OVERFLOW) lost += (int)record.sequence;
    if (record.kind == RECORD_EXIT && record.sequence > 0) exits++;
    if (record.kind == RECORD_EXIT && record.sequence == 0 && !ended) kept = WEXITSTATUS(record.status);
  }
  printf("%d exits or lost, some lost: %d, kept with status %d\n", exits + lost, lost > 0, kept);
  return 0;
}

int main(int argc, char *argv[]) {
  setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
  alarm(LIMIT_SECONDS);
  if (argc < 6) return 2;
  return strcmp(argv[5], "0") == 0 ? flood_vminit(atoi(argv[1])) : read_backlog(atoi(argv[1]));
}
