#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "files.h"
#include "functions.h"
#include "napi/pool.h"

#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif

/* One mount(2) or umount2(2) call. */
struct mount_work {
  struct pool_work pool;
  const char *source, *target, *type, *data;
  unsigned long flags;
  bool refuse_links;
};

static int mount_at(const struct mount_work *work, const char *target) {
  return mount(work->source, target, work->type, work->flags, work->data) == 0 ? 0 : -errno;
}

static void run_mount(struct pool_work *pool) {
  struct mount_work *work = (struct mount_work *)pool;
  if (!work->refuse_links) {
    pool->result = mount_at(work, work->target);
    return;
  }
  int fd = open_without_links(work->target);
  pool->result = fd;
  if (fd < 0) return;
  char target[64];
  snprintf(target, sizeof target, "/proc/self/fd/%d", fd);
  pool->result = mount_at(work, target);
  close(fd);
}

static void run_unmount(struct pool_work *pool) {
  struct mount_work *work = (struct mount_work *)pool;
  pool->result = umount2(work->target, (int)work->flags) == 0 ? 0 : -errno;
}

static napi_value mount_file_system(napi_env env, napi_callback_info info) {
  struct mount_work *work = pool_begin(env, info, sizeof *work);
  if (work == NULL) return NULL;
  work->source = string_argument(&work->pool.arguments, 0);
  work->target = string_argument(&work->pool.arguments, 1);
  work->type = string_argument(&work->pool.arguments, 2);
  work->flags = integer_argument(&work->pool.arguments, 3);
  work->data = string_argument(&work->pool.arguments, 4);
  work->refuse_links = boolean_argument(&work->pool.arguments, 5);
  return pool_queue(env, &work->pool, run_mount);
}

static napi_value unmount(napi_env env, napi_callback_info info) {
  struct mount_work *work = pool_begin(env, info, sizeof *work);
  if (work == NULL) return NULL;
  work->target = string_argument(&work->pool.arguments, 0);
  work->flags = integer_argument(&work->pool.arguments, 1);
  return pool_queue(env, &work->pool, run_unmount);
}

/*
 * Clones a mount from one mount namespace into another. setns(2) changes a thread's mount namespace only after the
 * thread has stopped sharing its root and working directory with other threads. That cannot be undone, so each call
 * runs on a thread that ends with it.
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

/* Runs on its own thread. setns(2) sets the thread's root to the namespace's root, so that paths stay below it. */
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

const struct addon_function mount_functions[] = {
    {"mount", mount_file_system},
    {"unmount", unmount},
    {"cloneMount", clone_mount},
    {NULL, NULL},
};
