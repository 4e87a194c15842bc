#pragma once

#include "../state.h"

/* Applies the limits of an agent. Takes ownership of `listener`. Returns what is wrong, or NULL. */
const char *hello_accept(struct broker *broker, const struct control_header *header, const struct hello *hello,
                         int listener);
