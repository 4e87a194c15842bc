/*
 * Calls that move their thread into another namespace. Each runs on a thread of its own, because the thread cannot be
 * moved back.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "functions.h"
#include "napi/pool.h"

#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif

/* Runs `on_thread` with the work on a thread of its own, which ends before this returns. */
static void run_on_own_thread(struct pool_work *work, void *(*on_thread)(void *)) {
  pthread_t thread;
  int error = pthread_create(&thread, NULL, on_thread, work);
  if (error == 0)
    pthread_join(thread, NULL);
  else
    work->result = -error;
}

/*
 * Clones a mount from one mount namespace into another. setns(2) changes a thread's mount namespace only after the
 * thread has stopped sharing its root and working directory with other threads, which cannot be undone.
 */
struct clone_work {
  struct pool_work pool;
  int from, to; /* pids of processes in the two namespaces */
  const char *source, *target;
};

static int open_namespace(int process) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/ns/mnt", process);
  return open(path, O_RDONLY | O_CLOEXEC);
}

/* Returns a detached copy of the mounts at and below the source, or -1. */
static int cloned_tree(const struct clone_work *work, int from) {
  if (setns(from, CLONE_NEWNS) != 0) return -1;
  return (int)syscall(SYS_open_tree, AT_FDCWD, work->source, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
}

static int attach(const struct clone_work *work, int to, int tree) {
  if (setns(to, CLONE_NEWNS) != 0) return -1;
  return (int)syscall(SYS_move_mount, tree, "", AT_FDCWD, work->target, MOVE_MOUNT_F_EMPTY_PATH);
}

/* setns(2) sets the thread's root to the namespace's root, so that paths stay below it. */
static void *clone_on_thread(void *data) {
  struct clone_work *work = data;
  int from = open_namespace(work->from), to = open_namespace(work->to), tree = -1;
  if (from >= 0 && to >= 0 && unshare(CLONE_FS) == 0) tree = cloned_tree(work, from);
  work->pool.result = tree >= 0 && attach(work, to, tree) == 0 ? 0 : -errno;
  if (tree >= 0) close(tree);
  if (to >= 0) close(to);
  if (from >= 0) close(from);
  return NULL;
}

static void run_clone(struct pool_work *pool) {
  run_on_own_thread(pool, clone_on_thread);
}

static napi_value clone_mount(napi_env env, napi_callback_info info) {
  struct clone_work *work = pool_begin(env, info, sizeof *work);
  if (work == NULL) return NULL;
  work->from = integer_argument(&work->pool.arguments, 0);
  work->source = string_argument(&work->pool.arguments, 1);
  work->to = integer_argument(&work->pool.arguments, 2);
  work->target = string_argument(&work->pool.arguments, 3);
  return pool_queue(env, &work->pool, run_clone);
}

/* Makes an ipc and a uts namespace and mounts each on a file. unshare(2) moves the calling thread into them. */
struct pin_work {
  struct pool_work pool;
  const char *ipc, *uts; /* the files */
  const char *hostname;  /* empty: the name stays */
};

static int bind_over(const char *source, const char *target) {
  return mount(source, target, NULL, MS_BIND, NULL);
}

static bool make_namespaces(const struct pin_work *work) {
  if (unshare(CLONE_NEWIPC | CLONE_NEWUTS) != 0) return false;
  size_t length = strlen(work->hostname);
  if (length > 0 && sethostname(work->hostname, length) != 0) return false;
  return bind_over("/proc/thread-self/ns/ipc", work->ipc) == 0 && bind_over("/proc/thread-self/ns/uts", work->uts) == 0;
}

static void *pin_on_thread(void *data) {
  struct pin_work *work = data;
  work->pool.result = make_namespaces(work) ? 0 : -errno;
  return NULL;
}

static void run_pin(struct pool_work *pool) {
  run_on_own_thread(pool, pin_on_thread);
}

static napi_value pin_namespaces(napi_env env, napi_callback_info info) {
  struct pin_work *work = pool_begin(env, info, sizeof *work);
  if (work == NULL) return NULL;
  work->ipc = string_argument(&work->pool.arguments, 0);
  work->uts = string_argument(&work->pool.arguments, 1);
  work->hostname = string_argument(&work->pool.arguments, 2);
  return pool_queue(env, &work->pool, run_pin);
}

const struct addon_function namespace_functions[] = {
    {"cloneMount", clone_mount},
    {"pinNamespaces", pin_namespaces},
    {NULL, NULL},
};
