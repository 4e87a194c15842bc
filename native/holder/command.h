#pragma once

#include "state.h"

/* Carries out the lines that have come, and goes on with a listing. */
void commands_read(struct holder *holder, struct connection *connection);
