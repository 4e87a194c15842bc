#pragma once

#include "../state.h"

/*
 * Takes the limits and the listening socket of an agent. Owns `listener` from now on. Returns what is wrong with them, or
 * NULL.
 */
const char *hello_accept(struct broker *broker, const struct control_header *header, const struct hello *hello,
                         int listener);
