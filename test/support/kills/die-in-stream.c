/*
 * Preloaded into an agent: kills it before or after the n-th step of a stream over a port since `die_at` was set to n in
 * the file STREAM_STEPS. Steps are the system calls of the relay's thread that move bytes and totals, and those of the
 * main thread that save a record, store a descriptor, connect, and write an opening.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define OPENING_BYTES 16

struct plan {
  _Atomic uint32_t die_at; /* 0: the agent lives */
  _Atomic uint32_t steps;
  char died[32];
};

static struct plan *plan;

__attribute__((constructor)) static void open_plan(void) {
  const char *path = getenv("STREAM_STEPS");
  int fd = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
  if (fd == -1) return;
  void *mapped = mmap(NULL, sizeof *plan, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped != MAP_FAILED) plan = mapped;
}

static bool is_main(void) {
  return gettid() == getpid();
}

static void step(const char *name) {
  if (plan == NULL || plan->die_at == 0) return;
  if (atomic_fetch_add(&plan->steps, 1) + 1 != plan->die_at) return;
  strncpy(plan->died, name, sizeof plan->died - 1);
  plan->die_at = 0;
  kill(getpid(), SIGKILL);
  pause();
}

#define WRAP(result, name, on_step, parameters, ...) \
  result name parameters { \
    static result(*real) parameters; \
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, #name); \
    bool is_step = on_step; \
    if (is_step) step("before " #name); \
    result value = real(__VA_ARGS__); \
    if (is_step) step("after " #name); \
    return value; \
  }

WRAP(ssize_t, splice, !is_main(), (int in, off64_t *at, int out, off64_t *to, size_t length, unsigned flags), in, at,
     out, to, length, flags)
WRAP(ssize_t, tee, !is_main(), (int in, int out, size_t length, unsigned flags), in, out, length, flags)
WRAP(ssize_t, recv, !is_main(), (int fd, void *bytes, size_t length, int flags), fd, bytes, length, flags)
WRAP(ssize_t, send, !is_main(), (int fd, const void *bytes, size_t length, int flags), fd, bytes, length, flags)
WRAP(ssize_t, pwrite, is_main(), (int fd, const void *bytes, size_t length, off_t at), fd, bytes, length, at)
WRAP(ssize_t, pwrite64, is_main(), (int fd, const void *bytes, size_t length, off_t at), fd, bytes, length, at)
WRAP(ssize_t, sendmsg, is_main(), (int fd, const struct msghdr *message, int flags), fd, message, flags)
WRAP(int, connect, is_main(), (int fd, const struct sockaddr *address, socklen_t length), fd, address, length)
WRAP(ssize_t, write, is_main() && length == OPENING_BYTES, (int fd, const void *bytes, size_t length), fd, bytes,
     length)
