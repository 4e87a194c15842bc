#pragma once

#include <stdnoreturn.h>

/*
 * Runs the connection broker: it keeps the clients' ttRPC connections while agents come and go. `vminit_fd` is a
 * SOCK_SEQPACKET socket to vminit; its end ends the broker. docs/broker.md describes the whole.
 */
noreturn void broker_run(int vminit_fd);
