#pragma once

#include "../state.h"

bool child_name_is_valid(const char *name);

/* Returns NULL when no child of this name was started. */
struct child *child_find(struct holder *holder, const char *name);

struct child_plan {
  const char *name;
  bool is_console;
  char *const *walls;
  size_t wall_count;
  char *const *argv;
};

/*
 * Starts a program by a path or PATH. stderr goes to NAME.log of the folder. With `is_console` stdin and stdout are
 * ring 0; otherwise stdin is /dev/null and stdout goes to the log, too. Returns NULL with errno set: EEXIST when a
 * child of this name runs, ENOBUFS when too many children run. `failed_wall` is the index of the wall that failed, or -1.
 */
struct child *child_start(struct holder *holder, const struct child_plan *plan, int *failed_wall);

/* Records the ends of children, and tells the connections that want it. Orphans are just reaped. */
void children_reap(struct holder *holder);

/* `NAME PID running`, `NAME PID exited STATUS` or `NAME PID killed SIGNAL`. */
#define CHILD_TEXT_BYTES (NAME_BYTES_MAX + 40)
void child_describe(const struct child *child, char text[CHILD_TEXT_BYTES]);

/* The file `exits`, whose lines are those of all children, is read when the holder is dead. Returns false with errno. */
bool exits_open(struct holder *holder);
