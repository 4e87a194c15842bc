#pragma once

#include "../state.h"

/*
 * A moment of CLOCK_BOOTTIME at which all processes of the namespace are killed, unless it is set anew before. The kernel's timer
 * wakes the holder then, and no other does. A lease that has ended is the holder's last: it starts no program any more.
 */

/* Of CLOCK_BOOTTIME. */
uint64_t boot_ns(void);

/* Returns false with errno set: ETIME when this moment has passed, or the one before; ERANGE when it is too far. */
bool lease_set(struct holder *holder, uint64_t until_ns);

/* Kills the processes when it has, also before the timer's event is handled. */
bool lease_has_ended(struct holder *holder);

void lease_event(struct holder *holder);
