#pragma once

#include <stdnoreturn.h>

/* Runs the connection broker (docs/broker.md) until its SOCK_SEQPACKET socket `vminit_fd` ends. */
noreturn void broker_run(int vminit_fd);
