#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/swap.h>
#include <time.h>
#include <unistd.h>

#include "functions.h"
#include "napi/call.h"

static int64_t boottime(struct call *call) {
  struct timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  napi_create_bigint_uint64(call->env, (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec, &call->value);
  return 0;
}

static int64_t set_file_limit(struct call *call) {
  struct rlimit limit = {.rlim_cur = call->given[1].integer, .rlim_max = call->given[2].integer};
  return prlimit(call->given[0].integer, RLIMIT_NOFILE, &limit, NULL);
}

/*
 * Locks the pages of the program and its libraries from their next use on. Clean pages are unmapped first, because most
 * were used at the start only; the page cache keeps them. Anonymous memory is not locked: V8 and malloc return it by
 * MADV_DONTNEED, which the kernel refuses for locked memory.
 */
static int lock_segments(struct dl_phdr_info *object, size_t size, void *data) {
  (void)size;
  (void)data;
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
    if (segment->p_type != PT_LOAD || segment->p_filesz == 0) continue;
    uintptr_t address = object->dlpi_addr + segment->p_vaddr;
    uintptr_t start = address / page * page;
    size_t length = address + segment->p_filesz - start;
    if ((segment->p_flags & PF_W) == 0) madvise((void *)start, length, MADV_DONTNEED);
    if (mlock2((void *)start, length, MLOCK_ONFAULT) != 0) return errno;
  }
  return 0;
}

static int64_t lock_files(struct call *call) {
  (void)call;
  errno = dl_iterate_phdr(lock_segments, NULL);
  return errno == 0 ? 0 : -1;
}

static int64_t set_time(struct call *call) {
  struct timespec time = {.tv_sec = call->given[0].integer, .tv_nsec = call->given[1].integer};
  return clock_settime(CLOCK_REALTIME, &time);
}

static int64_t set_hostname(struct call *call) {
  return sethostname(call->given[0].string, strlen(call->given[0].string));
}

static int64_t set_window_size(struct call *call) {
  struct winsize size = {.ws_row = call->given[1].integer, .ws_col = call->given[2].integer};
  return ioctl(call->given[0].integer, TIOCSWINSZ, &size);
}

static int64_t swap_on(struct call *call) {
  return swapon(call->given[0].string, call->given[1].integer);
}

static int64_t control(struct call *call) {
  const unsigned long request = call->given[1].integer;
  /* The request number encodes how many bytes the kernel reads or writes. */
  if (call->given[2].data.length < _IOC_SIZE(request)) return -EINVAL;
  return ioctl(call->given[0].integer, request, call->given[2].data.bytes);
}

/* Node exports OpenSSL's functions. The symbol is weak: without it the addon loads, and the caller gets ENOSYS. */
extern int RAND_poll(void) __attribute__((weak));

/*
 * Reseeds the process's random generators from the kernel (RAND_poll(3)). That reseeds the primary generator; those of
 * the threads notice, and reseed from it at their next use.
 */
static int64_t reseed_generators(struct call *call) {
  (void)call;
  if (RAND_poll == NULL) return -ENOSYS;
  return RAND_poll() == 1 ? 0 : -EIO;
}

const struct addon_function system_functions[] = {
    {"boottimeNs", "", boottime, false},
    {"lockMappedFiles", "", lock_files, false},
    {"reseedGenerators", "", reseed_generators, false},
    {"setFileLimit", "iii", set_file_limit, false},
    {"setHostname", "s", set_hostname, false},
    {"setTime", "ii", set_time, false},
    {"setWindowSize", "iii", set_window_size, false},
    {"swapOn", "si", swap_on, true},
    {"ioctl", "iid", control, true},
    {0},
};
