#define _GNU_SOURCE
#include "reap.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "../clock.h"

static uint64_t microseconds(struct timeval time) {
  return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_usec;
}

bool reap_one(struct record *record) {
  int status;
  struct rusage usage;
  pid_t pid;
  do pid = wait4(-1, &status, WNOHANG | __WALL, &usage);
  while (pid < 0 && errno == EINTR);
  if (pid <= 0) return false;
  *record = (struct record){
      .version = RECORD_VERSION,
      .kind = RECORD_EXIT,
      .pid = pid,
      .status = status,
      .boottime_ns = boottime_ns(),
      .utime_us = microseconds(usage.ru_utime),
      .stime_us = microseconds(usage.ru_stime),
      .maxrss_kib = (uint64_t)usage.ru_maxrss,
  };
  return true;
}
