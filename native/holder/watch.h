#pragma once

#include "state.h"

/* Waits for `events` (EPOLLIN …) of the descriptor. Returns false with errno set. */
bool watch_set(struct holder *holder, struct watch *watch, enum subject subject, uint32_t index, uint32_t events);

void watch_close(struct holder *holder, struct watch *watch);
