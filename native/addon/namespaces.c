/* Calls that move their thread into another namespace. Each has its own thread, which cannot be moved back. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "functions.h"
#include "napi/call.h"

#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif

/* With its NUL (man 2 gethostname). */
#define HOSTNAME_SIZE 65

static int64_t run_on_own_thread(struct call *call, void *(*on_thread)(void *)) {
  pthread_t thread;
  errno = pthread_create(&thread, NULL, on_thread, call);
  if (errno != 0) return -1;
  pthread_join(thread, NULL);
  errno = -(int)call->result;
  return errno == 0 ? 0 : -1;
}

static int open_namespace(int process) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/ns/mnt", process);
  return open(path, O_RDONLY | O_CLOEXEC);
}

static int cloned_tree(int from, const char *source) {
  if (setns(from, CLONE_NEWNS) != 0) return -1;
  return (int)syscall(SYS_open_tree, AT_FDCWD, source, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
}

static int attach(int to, int tree, const char *target) {
  if (setns(to, CLONE_NEWNS) != 0) return -1;
  return (int)syscall(SYS_move_mount, tree, "", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH);
}

/* setns(2) sets the thread's root to the namespace's root, so that paths stay below it. */
static void *clone_on_thread(void *data) {
  struct call *call = data;
  const union argument *given = call->given;
  int from = open_namespace(given[0].integer), to = open_namespace(given[2].integer), tree = -1;
  if (from >= 0 && to >= 0 && unshare(CLONE_FS) == 0) tree = cloned_tree(from, given[1].string);
  call->result = tree >= 0 && attach(to, tree, given[3].string) == 0 ? 0 : -errno;
  if (tree >= 0) close(tree);
  if (to >= 0) close(to);
  if (from >= 0) close(from);
  return NULL;
}

/* Clones a mount into another process's mount namespace. setns(2) requires a thread that shares no root (CLONE_FS). */
static int64_t clone_mount(struct call *call) {
  return run_on_own_thread(call, clone_on_thread);
}

static int bind_over(const char *source, const char *target) {
  return mount(source, target, NULL, MS_BIND, NULL);
}

static bool make_namespaces(const char *ipc, const char *uts, const char *hostname) {
  if (unshare(CLONE_NEWIPC | CLONE_NEWUTS) != 0) return false;
  size_t length = strlen(hostname);
  if (length > 0 && sethostname(hostname, length) != 0) return false;
  return bind_over("/proc/thread-self/ns/ipc", ipc) == 0 && bind_over("/proc/thread-self/ns/uts", uts) == 0;
}

static void *pin_on_thread(void *data) {
  struct call *call = data;
  const union argument *given = call->given;
  call->result = make_namespaces(given[0].string, given[1].string, given[2].string) ? 0 : -errno;
  return NULL;
}

/* Makes an ipc and a uts namespace and mounts each on a file. unshare(2) moves the calling thread into them. */
static int64_t pin_namespaces(struct call *call) {
  return run_on_own_thread(call, pin_on_thread);
}

static bool exchange_hostname(int uts, char before[static HOSTNAME_SIZE], const char *hostname) {
  if (setns(uts, CLONE_NEWUTS) != 0 || gethostname(before, HOSTNAME_SIZE) != 0) return false;
  size_t length = strlen(hostname);
  return length == 0 || sethostname(hostname, length) == 0;
}

static void *exchange_on_thread(void *data) {
  struct call *call = data;
  const union argument *given = call->given;
  int uts = open(given[0].string, O_RDONLY | O_CLOEXEC);
  bool done = uts >= 0 && exchange_hostname(uts, call->bytes, given[1].string);
  call->result = done ? 0 : -errno;
  if (uts >= 0) close(uts);
  return NULL;
}

/* The host name of a uts namespace, which gets another one unless that is empty. */
static int64_t hostname_in(struct call *call) {
  call->bytes = calloc(1, HOSTNAME_SIZE);
  if (call->bytes == NULL) return -1;
  int64_t result = run_on_own_thread(call, exchange_on_thread);
  call->length = strlen(call->bytes);
  return result;
}

const struct addon_function namespace_functions[] = {
    {"cloneMount", "isis", clone_mount, true},
    {"hostnameIn", "ss", hostname_in, true},
    {"pinNamespaces", "sss", pin_namespaces, true},
    {0},
};
