#pragma once

#include "state.h"

/*
 * Passes bytes between QEMU and a server of NBD elsewhere, both ways, until QEMU closes its end; what the wire has no room for then is
 * lost. QEMU gets records of TLS whole or not at all, and can always send: its version 7.2 waits for ever in a handshake whose
 * connection ends within a record, or before its last one. Takes both sockets, also when it returns false with errno.
 */
bool relay_open(struct holder *holder, int near, int wire);

void relay_event(struct holder *holder, uint32_t index);
