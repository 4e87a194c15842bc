/*
 * Connects to the unix socket PATH. For each line with a number it makes so many orphans, which exit at once, and answers
 * with the microseconds until all were reaped. The nearest subreaper reaps them, or with `own` this program itself. Never
 * more than BATCH orphans live or wait for their reaper. The program ends with the socket, or after LIMIT_SECONDS in
 * which a batch was not reaped.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BATCH 100
#define LIMIT_SECONDS 10
/* How often the program looks whether an orphan was reaped. */
#define LOOK_US 50

static int fail(const char *what) {
  perror(what);
  exit(EXIT_FAILURE);
}

static int check(int result, const char *what) {
  return result < 0 ? fail(what) : result;
}

static long long now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

/* The parent of the orphans sets `pids` and ends. */
static void make_orphans(pid_t *pids, int count) {
  pid_t parent = check(fork(), "fork");
  if (parent == 0) {
    for (int i = 0; i < count; i++) {
      pid_t pid = check(fork(), "fork");
      if (pid == 0) _exit(0);
      pids[i] = pid;
    }
    _exit(0);
  }
  int status;
  check(waitpid(parent, &status, 0), "waitpid");
  if (status != 0) exit(EXIT_FAILURE);
}

static void await_reaper(const pid_t *pids, int count) {
  for (int i = 0; i < count; i++)
    while (kill(pids[i], 0) == 0 || errno != ESRCH) usleep(LOOK_US);
}

int main(int argc, char *argv[]) {
  if (argc < 2) return EXIT_FAILURE;
  const bool own = argc > 2 && strcmp(argv[2], "own") == 0;
  if (own) check(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl");
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  strncpy(address.sun_path, argv[1], sizeof address.sun_path - 1);
  int fd = check(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
  check(connect(fd, (struct sockaddr *)&address, sizeof address), argv[1]);
  FILE *commands = fdopen(fd, "r");
  pid_t *pids = mmap(NULL, BATCH * sizeof *pids, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (commands == NULL || pids == MAP_FAILED) return fail("mmap");
  for (int count; fscanf(commands, "%d", &count) == 1;) {
    const long long begin = now_us();
    for (int batch; count > 0; count -= batch) {
      batch = count < BATCH ? count : BATCH;
      alarm(LIMIT_SECONDS);
      make_orphans(pids, batch);
      if (!own) await_reaper(pids, batch);
      while (own && wait(NULL) > 0) continue;
      alarm(0);
    }
    dprintf(fd, "%lld\n", now_us() - begin);
  }
}
