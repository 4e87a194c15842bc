#pragma once

#include "state.h"

/*
 * Waits for `events`; 0 still reports errors and hang-ups. Returns false with errno set when the kernel has no room for one
 * more descriptor to wait for: the owner must not keep it, for nothing of it would be noticed.
 */
bool watch_set(struct broker *broker, struct watch *watch, uint32_t events);

/* Waits for nothing of the descriptor any more. */
void watch_remove(struct broker *broker, struct watch *watch);

/* Removes and closes it, if it is open. */
void watch_close(struct broker *broker, struct watch *watch);
