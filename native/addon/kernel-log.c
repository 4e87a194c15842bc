#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "napi/addon.h"
#include "napi/call.h"

/* Records that one call skips at most: other work waits meanwhile. */
#define SKIPPED_AT_ONCE 1024

/* A descriptor whose reads do not block, one record each. It begins after the last record, or with the oldest one. */
static int64_t open_kernel_log(struct call *call) {
  int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd == -1 || call->given[0].integer != 0) return fd;
  return lseek(fd, 0, SEEK_END) == -1 ? closed_after(fd, -errno) : fd;
}

/* `PRIORITY,SEQUENCE,TIME,FLAGS;TEXT` (Documentation/ABI/testing/dev-kmsg). False for a record without a time. */
static bool is_before(const char *record, int64_t us) {
  for (int field = 0; field < 2; field++) {
    while (*record >= '0' && *record <= '9') record++;
    if (*record++ != ',') return false;
  }
  return strtoll(record, NULL, 10) < us;
}

/* The next record, unless it is from before a time. Without one: -EAGAIN, or 0 if there may be more records. */
static int64_t read_kernel_log(struct call *call) {
  const int fd = call->given[0].integer;
  char *record = addon_of(call->env)->scratch;
  for (int count = 0; count < SKIPPED_AT_ONCE; count++) {
    const ssize_t length = read(fd, record, SCRATCH_BYTES - 1);
    /* The next record was overwritten. The one after it follows. */
    if (length == -1 && errno == EPIPE) continue;
    if (length <= 0) return length == 0 ? -EAGAIN : -errno;
    record[length] = '\0';
    if (is_before(record, call->given[1].integer)) continue;
    napi_create_buffer_copy(call->env, (size_t)length, record, NULL, &call->value);
    return length;
  }
  return 0;
}

const struct addon_function kernel_log_functions[] = {
    {"openKernelLog", "b", open_kernel_log, false},
    {"readKernelLog", "ii", read_kernel_log, false},
    {0},
};
