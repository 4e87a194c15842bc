#pragma once

#include <stdbool.h>

struct signalfd_siginfo;

/* Blocks the signals that vminit acts on and returns a non-blocking signalfd for them, or -1 with errno set. */
int signals_open(bool init_mode);

/* Takes the next signal. Returns false when there is none. */
bool signals_next(int fd, struct signalfd_siginfo *info);

/* Whether somebody sent it to vminit alone. A terminal sends its signals to the agent as well. */
bool signal_is_for_us_alone(const struct signalfd_siginfo *info);

/* Whether its sender wants the program to end. */
bool signal_asks_to_end(int number);
