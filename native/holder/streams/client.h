#pragma once

#include "../state.h"

/* Attached clients. None has a buffer: their output is in the ring, their input in the socket. */

/* Sends what the ring has for the client, as far as it reads. Closes it at the end of a closed ring. */
void client_send(struct holder *holder, struct connection *client);

/* Passes the client's input to the ring's peer, as far as that reads. */
void client_read(struct holder *holder, struct connection *client);

void client_event(struct holder *holder, struct connection *client, uint32_t events);

/* The new last `length` bytes of the ring are in holder->chunk. */
void clients_send_new(struct holder *holder, uint32_t ring, size_t length);

/* How many bytes may come before a client loses one. */
uint64_t clients_room(const struct holder *holder, uint32_t ring);

/* Closes those that have read less than the ring's first byte plus `margin`. */
void clients_close_behind(struct holder *holder, uint32_t ring, uint64_t margin);

/* The ring's peer takes input again, or never. */
void clients_resume_input(struct holder *holder, uint32_t ring);

/* The ring has closed: closes each client once it has everything. */
void clients_finish(struct holder *holder, uint32_t ring);

void clients_close(struct holder *holder, uint32_t ring);
