#pragma once

#include "state.h"

/* 0 still reports errors and hang-ups. Returns false with errno set: the owner must then close the descriptor. */
bool watch_set(struct broker *broker, struct watch *watch, uint32_t events);

void watch_remove(struct broker *broker, struct watch *watch);

void watch_close(struct broker *broker, struct watch *watch);
