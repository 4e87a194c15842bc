#pragma once

#include <stdbool.h>
#include <sys/types.h>

/*
 * The next child of this process is init of a PID namespace. An ordinary user gets a user namespace with it, in which
 * its user and group are the same. Returns false with errno set.
 */
bool namespace_make(void);

/*
 * As fork(2). This process joins the cgroups of v1 among these folders, and the child begins in the one of v2. Neither waits,
 * as every move of a process or of another thread does: for a grace period of RCU. Sets `failed` to the folder of an error.
 */
pid_t fork_into_cgroups(char *const *folders, const char **failed);
