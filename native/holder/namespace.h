#pragma once

#include <stdbool.h>

/*
 * The next child of this process is init of a PID namespace. An ordinary user gets a user namespace with it, in which
 * its user and group are the same. Returns false with errno set.
 */
bool namespace_make(void);
