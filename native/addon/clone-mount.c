/*
 * Cloning mounts from one mount namespace into another. A thread can only change its mount namespace when it shares its
 * root and working directory with no other (setns(2)), and cannot share them again: hence a thread that ends with it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pool.h"

#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif

struct clone_work {
  struct pool_work pool;
  int from, to; /* processes of the two namespaces */
  const char *source, *target;
};

static int open_namespace(int process) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/ns/mnt", process);
  return open(path, O_RDONLY | O_CLOEXEC);
}

/* A detached copy of what is mounted at the source and below it, or -1. */
static int cloned_tree(const struct clone_work *work, int from) {
  if (setns(from, CLONE_NEWNS) != 0) return -1;
  return (int)syscall(SYS_open_tree, AT_FDCWD, work->source,
                      OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
}

static int attach(const struct clone_work *work, int to, int tree) {
  if (setns(to, CLONE_NEWNS) != 0) return -1;
  return (int)syscall(SYS_move_mount, tree, "", AT_FDCWD, work->target, MOVE_MOUNT_F_EMPTY_PATH);
}

/* On a thread of its own. setns(2) makes the namespace's root the thread's, so that paths lead nowhere but below it. */
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
  pthread_t thread;
  int error = pthread_create(&thread, NULL, clone_on_thread, pool);
  if (error == 0)
    pthread_join(thread, NULL);
  else
    pool->result = -error;
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

const struct addon_function clone_mount_functions[] = {
    {"cloneMount", clone_mount},
    {NULL, NULL},
};
