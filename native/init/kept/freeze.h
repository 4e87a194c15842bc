#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "../channel/record.h"

#define FREEZE_FILE_SYSTEMS 32
#define FREEZE_CGROUPS 1024

/* The longest time for which anything stays frozen. */
#define FREEZE_LONGEST_MS 60000

/* How long a thaw holds up the power-off, or the next agent, from its begin on: a dead disk never answers. */
#define FREEZE_THAW_MS 3000

enum freeze_state { HELD, ASKED, FREEZING, FROZEN, REFUSED, THAWING, THAWED };

struct frozen_file_system {
  struct freeze *freeze;
  char name[RECORD_NAME_BYTES];
  int fd;
  dev_t device;
  enum freeze_state state;
  int error;
  bool is_told; /* the agent knows the state, or need not */
  pthread_t thread;
};

/*
 * The dead man's thaw: what an agent freezes is thawed without it (docs/vminit.md). File systems have a thread each and
 * all cgroups have one, because FIFREEZE and FITHAW wait for the disk: one that is dead holds up nothing but itself.
 */
struct freeze {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  struct frozen_file_system file_systems[FREEZE_FILE_SYSTEMS];
  unsigned file_system_count;
  unsigned threads; /* of file systems, that were started */
  struct frozen_cgroup {
    char name[RECORD_NAME_BYTES];
    int fd; /* of its freeze file */
    bool is_v2;
    bool is_asked; /* to be frozen */
    bool is_told;
    int error;
  } cgroups[FREEZE_CGROUPS];
  unsigned cgroup_count;
  pthread_t cgroup_thread;
  bool is_armed; /* the threads run */
  bool thaws_cgroups;
  bool cgroups_done;
  bool end_untold; /* the agent is to be told that nothing is frozen */
  int64_t bound_at_ms;
  int64_t thaw_began_ms; /* 0: not yet */
  int64_t thaw_by_ms;    /* when the wait for the thaw of everything is over */
};

void freeze_prepare(struct freeze *freeze);

/* Keeps a descriptor to thaw by. Returns 0 or an errno; the caller still owns `fd` then. `name` may be any bytes. */
int freeze_hold_file_system(struct freeze *freeze, const char name[RECORD_NAME_BYTES], int fd);
int freeze_hold_cgroup(struct freeze *freeze, const char name[RECORD_NAME_BYTES], int fd);

/* From now on everything is thawed after `bound_ms`; called again, the time begins anew. Returns 0 or an errno. */
int freeze_arm(struct freeze *freeze, uint64_t bound_ms);

/* Freezes a file system or a cgroup on its thread. Returns an errno, or 0; then `freeze_take` has the outcome. */
int freeze_begin(struct freeze *freeze, const char name[RECORD_NAME_BYTES]);

/* Thaws on the threads: file systems in the reverse order of their holds, then the cgroups unless they stay. */
void freeze_thaw(struct freeze *freeze, bool with_cgroups);

/*
 * Carries out a command of the agent, one of the five above; sets `*passed` to -1 when it keeps that. Returns whether the
 * agent gets `*result` as the answer now: 0 or an errno.
 */
bool freeze_obey(struct freeze *freeze, const struct record *record, int *passed, int *result);

/* Thaws everything and waits for it, until FREEZE_THAW_MS after its begin. */
void freeze_thaw_now(struct freeze *freeze);

/* Returns the next record for the agent, if there is one. A SIGCHLD says that there may be. */
bool freeze_take(struct freeze *freeze, struct record *record);
