#define _GNU_SOURCE
#include "freeze.h"

#include <errno.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "../clock.h"
#include "../log.h"
#include "store.h"

/* A file system that hangs delays the thaw of the others by this time. */
#define PATIENCE_MS 2000

#define STACK_BYTES 65536

void freeze_prepare(struct freeze *freeze) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  /* Nobody sets this clock, and it stands while the guest does. */
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&freeze->changed, &attributes);
  pthread_condattr_destroy(&attributes);
  pthread_mutex_init(&freeze->lock, NULL);
}

static bool is_over(const struct frozen_file_system *each) {
  return each->state == THAWED || each->state == REFUSED;
}

static bool all_over(const struct freeze *freeze) {
  if (!freeze->is_armed) return true;
  bool over = freeze->cgroups_done;
  for (unsigned i = 0; i < freeze->file_system_count; i++) over = over && is_over(&freeze->file_systems[i]);
  return over;
}

/* Wakes the other threads, and the main loop. */
static void announce(struct freeze *freeze) {
  pthread_cond_broadcast(&freeze->changed);
  kill(getpid(), SIGCHLD);
}

static void wait_until(struct freeze *freeze, int64_t time_ms) {
  const struct timespec time = {.tv_sec = time_ms / 1000, .tv_nsec = time_ms % 1000 * 1000000};
  pthread_cond_timedwait(&freeze->changed, &freeze->lock, &time);
}

static void begin_thaw(struct freeze *freeze, bool with_cgroups) {
  const int64_t now_ms = monotonic_ms();
  if (freeze->thaw_began_ms == 0) freeze->thaw_began_ms = now_ms;
  if (with_cgroups && !freeze->thaws_cgroups) freeze->thaw_by_ms = now_ms + FREEZE_THAW_MS;
  freeze->thaws_cgroups |= with_cgroups;
}

/* Waits for a change, or for the bound, at which the thaw of everything begins. */
static void wait_for_change(struct freeze *freeze) {
  if (monotonic_ms() >= freeze->bound_at_ms)
    begin_thaw(freeze, true);
  else
    wait_until(freeze, freeze->bound_at_ms);
}

/* Waits for the file systems from `first` on, but not long for one that hangs. */
static void wait_for_file_systems(struct freeze *freeze, unsigned first) {
  const int64_t end_ms = freeze->thaw_began_ms + PATIENCE_MS;
  for (unsigned i = first; i < freeze->file_system_count;) {
    if (is_over(&freeze->file_systems[i]) || monotonic_ms() >= end_ms)
      i++;
    else
      wait_until(freeze, end_ms);
  }
}

/* Makes the call without the lock. */
static void control(struct frozen_file_system *each, unsigned long request) {
  pthread_mutex_unlock(&each->freeze->lock);
  const int error = ioctl(each->fd, request, 0) == 0 ? 0 : errno;
  pthread_mutex_lock(&each->freeze->lock);
  each->error = error;
  each->is_told = false;
}

static void *keep_file_system(void *data) {
  struct frozen_file_system *each = data;
  struct freeze *freeze = each->freeze;
  pthread_mutex_lock(&freeze->lock);
  while (freeze->thaw_began_ms == 0) {
    if (each->state == ASKED) {
      each->state = FREEZING;
      control(each, FIFREEZE);
      each->state = each->error == 0 ? FROZEN : REFUSED;
      announce(freeze);
    } else {
      wait_for_change(freeze);
    }
  }
  wait_for_file_systems(freeze, (unsigned)(each - freeze->file_systems) + 1);
  if (each->state == FROZEN) {
    each->state = THAWING;
    control(each, FITHAW);
  }
  if (each->state == ASKED) each->is_told = false;
  if (each->state != REFUSED) each->state = THAWED;
  announce(freeze);
  pthread_mutex_unlock(&freeze->lock);
  return NULL;
}

/* Writes without the lock, for which the main loop waits. Only the thread of the cgroups does, so no freeze follows a thaw. */
static void write_cgroup(struct freeze *freeze, struct frozen_cgroup *each, const char *v1, const char *v2) {
  const char *word = each->is_v2 ? v2 : v1;
  pthread_mutex_unlock(&freeze->lock);
  const int error = pwrite(each->fd, word, strlen(word), 0) < 0 ? errno : 0;
  pthread_mutex_lock(&freeze->lock);
  each->error = error;
}

static struct frozen_cgroup *find_asked(struct freeze *freeze) {
  for (unsigned i = 0; i < freeze->cgroup_count; i++)
    if (freeze->cgroups[i].is_asked) return &freeze->cgroups[i];
  return NULL;
}

static void *keep_cgroups(void *data) {
  struct freeze *freeze = data;
  pthread_mutex_lock(&freeze->lock);
  while (!freeze->thaws_cgroups) {
    struct frozen_cgroup *asked = find_asked(freeze);
    if (asked == NULL || monotonic_ms() >= freeze->bound_at_ms) {
      wait_for_change(freeze);
      continue;
    }
    asked->is_asked = false;
    write_cgroup(freeze, asked, "FROZEN", "1");
    asked->is_told = false;
    announce(freeze);
  }
  wait_for_file_systems(freeze, 0);
  /* It fails for a cgroup that was removed. */
  for (unsigned i = freeze->cgroup_count; i > 0; i--) write_cgroup(freeze, &freeze->cgroups[i - 1], "THAWED", "0");
  freeze->cgroups_done = true;
  announce(freeze);
  pthread_mutex_unlock(&freeze->lock);
  return NULL;
}

/* Forgets everything; the threads have ended. */
static void release(struct freeze *freeze) {
  for (unsigned i = 0; i < freeze->file_system_count; i++) close(freeze->file_systems[i].fd);
  for (unsigned i = 0; i < freeze->cgroup_count; i++) close(freeze->cgroups[i].fd);
  freeze->file_system_count = freeze->cgroup_count = freeze->threads = 0;
  freeze->is_armed = freeze->cgroups_done = freeze->thaws_cgroups = false;
  freeze->thaw_began_ms = freeze->thaw_by_ms = 0;
}

/* The threads have nothing left to do but to return. */
static void end_threads(struct freeze *freeze) {
  pthread_mutex_unlock(&freeze->lock);
  for (unsigned i = 0; i < freeze->threads; i++) pthread_join(freeze->file_systems[i].thread, NULL);
  pthread_join(freeze->cgroup_thread, NULL);
  pthread_mutex_lock(&freeze->lock);
  release(freeze);
}

static unsigned find(const struct freeze *freeze, const char name[RECORD_NAME_BYTES]) {
  unsigned index = 0;
  while (index < freeze->file_system_count && strcmp(freeze->file_systems[index].name, name) != 0) index++;
  return index;
}

static struct frozen_cgroup *find_cgroup(struct freeze *freeze, const char name[RECORD_NAME_BYTES]) {
  for (unsigned i = 0; i < freeze->cgroup_count; i++)
    if (strcmp(freeze->cgroups[i].name, name) == 0) return &freeze->cgroups[i];
  return NULL;
}

int freeze_hold_file_system(struct freeze *freeze, const char name[RECORD_NAME_BYTES], int fd) {
  struct stat status, root;
  if (!store_is_name(name) || fd < 0 || fstat(fd, &status) != 0 || !S_ISDIR(status.st_mode)) return EINVAL;
  /* Not even by mistake: no program could be read or started. */
  if (stat("/", &root) != 0 || root.st_dev == status.st_dev) return EPERM;
  if (freeze->is_armed) return EBUSY;
  if (find(freeze, name) < freeze->file_system_count) return EEXIST;
  if (freeze->file_system_count == FREEZE_FILE_SYSTEMS) return ENOSPC;
  struct frozen_file_system *each = &freeze->file_systems[freeze->file_system_count++];
  *each = (struct frozen_file_system){.freeze = freeze, .fd = fd, .device = status.st_dev, .is_told = true};
  strcpy(each->name, name);
  return 0;
}

int freeze_hold_cgroup(struct freeze *freeze, const char name[RECORD_NAME_BYTES], int fd) {
  struct statfs status;
  if (!store_is_name(name) || fd < 0 || fstatfs(fd, &status) != 0) return EINVAL;
  const bool is_v2 = status.f_type == CGROUP2_SUPER_MAGIC;
  if (!is_v2 && status.f_type != CGROUP_SUPER_MAGIC) return EINVAL;
  if (freeze->is_armed) return EBUSY;
  if (find_cgroup(freeze, name) != NULL) return EEXIST;
  if (freeze->cgroup_count == FREEZE_CGROUPS) return ENOSPC;
  struct frozen_cgroup *each = &freeze->cgroups[freeze->cgroup_count++];
  *each = (struct frozen_cgroup){.fd = fd, .is_v2 = is_v2, .is_told = true};
  strcpy(each->name, name);
  return 0;
}

/* The threads take no signals. Returns 0 or an errno. */
static int start_threads(struct freeze *freeze) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  sigset_t every, before;
  sigfillset(&every);
  pthread_sigmask(SIG_SETMASK, &every, &before);
  int error = pthread_create(&freeze->cgroup_thread, &attributes, keep_cgroups, freeze);
  freeze->is_armed = error == 0;
  while (error == 0 && freeze->threads < freeze->file_system_count) {
    struct frozen_file_system *each = &freeze->file_systems[freeze->threads];
    error = pthread_create(&each->thread, &attributes, keep_file_system, each);
    if (error == 0) freeze->threads++;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return error;
}

int freeze_arm(struct freeze *freeze, uint64_t bound_ms) {
  if (bound_ms == 0 || bound_ms > FREEZE_LONGEST_MS) return EINVAL;
  pthread_mutex_lock(&freeze->lock);
  /* Cgroups may stay frozen for longer than the file systems. */
  int error = freeze->thaws_cgroups ? ECANCELED : 0;
  if (error == 0) freeze->bound_at_ms = monotonic_ms() + (int64_t)bound_ms;
  if (error == 0 && !freeze->is_armed) {
    error = start_threads(freeze);
    for (unsigned i = freeze->threads; i < freeze->file_system_count; i++) freeze->file_systems[i].state = THAWED;
    if (error != 0) begin_thaw(freeze, true);
  }
  if (!freeze->is_armed) release(freeze);
  pthread_cond_broadcast(&freeze->changed);
  pthread_mutex_unlock(&freeze->lock);
  return error;
}

int freeze_begin(struct freeze *freeze, const char name[RECORD_NAME_BYTES]) {
  if (!store_is_name(name)) return EINVAL;
  pthread_mutex_lock(&freeze->lock);
  struct frozen_file_system *each = &freeze->file_systems[find(freeze, name)];
  struct frozen_cgroup *cgroup = find_cgroup(freeze, name);
  int error = 0;
  if (cgroup == NULL && each == &freeze->file_systems[freeze->file_system_count])
    error = ENOENT;
  else if (!freeze->is_armed || freeze->thaw_began_ms != 0)
    error = ECANCELED;
  else if (cgroup != NULL)
    cgroup->is_asked = true;
  else if (each->state != HELD)
    error = EALREADY;
  else
    each->state = ASKED;
  pthread_cond_broadcast(&freeze->changed);
  pthread_mutex_unlock(&freeze->lock);
  return error;
}

void freeze_thaw(struct freeze *freeze, bool with_cgroups) {
  pthread_mutex_lock(&freeze->lock);
  freeze->end_untold |= with_cgroups;
  if (freeze->is_armed) begin_thaw(freeze, with_cgroups);
  if (!freeze->is_armed && with_cgroups) release(freeze);
  announce(freeze);
  pthread_mutex_unlock(&freeze->lock);
}

bool freeze_obey(struct freeze *freeze, const struct record *record, int *passed, int *result) {
  switch (record->kind) {
    case RECORD_HOLD_FILE_SYSTEM:
    case RECORD_HOLD_CGROUP:
      *result = record->kind == RECORD_HOLD_CGROUP ? freeze_hold_cgroup(freeze, record->name, *passed)
                                                   : freeze_hold_file_system(freeze, record->name, *passed);
      if (*result == 0) *passed = -1;
      return true;
    case RECORD_ARM_THAW:
      *result = freeze_arm(freeze, record->sequence);
      return true;
    case RECORD_FREEZE:
      *result = freeze_begin(freeze, record->name);
      return *result != 0;
    default:
      freeze_thaw(freeze, record->pid != 1);
      return false;
  }
}

void freeze_thaw_now(struct freeze *freeze) {
  freeze_thaw(freeze, true);
  pthread_mutex_lock(&freeze->lock);
  const int64_t end_ms = freeze->thaw_by_ms;
  const bool waits = monotonic_ms() < end_ms;
  while (!all_over(freeze) && monotonic_ms() < end_ms) wait_until(freeze, end_ms);
  for (unsigned i = 0; i < freeze->file_system_count; i++) {
    const dev_t device = freeze->file_systems[i].device;
    if (waits && !is_over(&freeze->file_systems[i]))
      log_line("file system %u:%u: not thawed within %d ms", major(device), minor(device), FREEZE_THAW_MS);
    freeze->file_systems[i].is_told = true;
  }
  for (unsigned i = 0; i < freeze->cgroup_count; i++) freeze->cgroups[i].is_told = true;
  if (freeze->is_armed && all_over(freeze)) end_threads(freeze);
  freeze->end_untold = false;
  pthread_mutex_unlock(&freeze->lock);
}

static void tell(struct record *record, enum record_kind kind, const char *name, int result) {
  *record = (struct record){.version = RECORD_VERSION, .kind = kind};
  strcpy(record->name, name);
  record->result = result;
}

bool freeze_take(struct freeze *freeze, struct record *record) {
  bool has_record = false;
  pthread_mutex_lock(&freeze->lock);
  for (unsigned i = freeze->file_system_count; !has_record && i > 0; i--) {
    struct frozen_file_system *each = &freeze->file_systems[i - 1];
    if (each->is_told) continue;
    tell(record, each->state == THAWED ? RECORD_THAWED : RECORD_FREEZE_RESULT, each->name, each->error);
    each->is_told = has_record = true;
  }
  for (unsigned i = 0; !has_record && i < freeze->cgroup_count; i++) {
    struct frozen_cgroup *each = &freeze->cgroups[i];
    if (each->is_told) continue;
    tell(record, RECORD_FREEZE_RESULT, each->name, each->error);
    each->is_told = has_record = true;
  }
  if (!has_record && freeze->is_armed && all_over(freeze)) {
    end_threads(freeze);
    freeze->end_untold = true;
  }
  if (!has_record && !freeze->is_armed && freeze->end_untold) {
    freeze->end_untold = false;
    tell(record, RECORD_THAWED, "", 0);
    has_record = true;
  }
  pthread_mutex_unlock(&freeze->lock);
  return has_record;
}
