#pragma once

#include "state.h"

/* Carries out the lines that have come, and goes on with a listing. `events` are those of epoll. */
void commands_read(struct holder *holder, struct connection *connection, uint32_t events);
