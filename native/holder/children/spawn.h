#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct spawn {
  char *const *argv;
  int console; /* the child's stdin and stdout; or -1: /dev/null and the log */
  int log;
  char *const *walls;
  size_t wall_count;
  uint64_t until_ns; /* of CLOCK_BOOTTIME, for its exec */
  int failed_wall;   /* -1; set by spawn_process to the index of the wall that failed */
  pid_t pid;         /* set by spawn_process */
  pid_t outer_pid;   /* set by spawn_process: in the namespace that /proc is of */
};

/* Starts a process in a session of its own, and waits for its exec. Returns false with errno set. */
bool spawn_process(struct spawn *spawn);

/* The pid of this process in the namespace that /proc is of; 0 without /proc. */
pid_t outer_pid(void);
