#pragma once

#include <stdnoreturn.h>

#include "../state.h"

/* Rings and where their bytes come from. */

/* Returns NULL when there is none. */
struct ring *ring_find(struct holder *holder, uint32_t number);

/* Makes ring `number`, or opens a closed one again. Returns NULL with errno set: EEXIST when it is open. */
struct ring *ring_open(struct holder *holder, uint32_t number);

/* The ring's bytes come from the socket `fd`, which the ring owns from now on. Returns false with errno set. */
bool source_begin(struct holder *holder, struct ring *ring, int fd);

/* Makes ring `number`, whose bytes come from the first one that connects to `path`. Returns false with errno set. */
bool port_open(struct holder *holder, uint32_t number, const char *path);

void port_accept(struct holder *holder, struct ring *ring);

/* Nothing more comes. */
void source_end(struct holder *holder, struct ring *ring);

void source_event(struct holder *holder, struct ring *ring, uint32_t events);

/* Reads sources again whose clients have caught up or have had their time. Returns the ms to the next look, or -1. */
int sources_resume(struct holder *holder);

/* Forgets the ring and removes its file. */
void ring_close(struct holder *holder, struct ring *ring);

/* Removes the socket files, and exits: the kernel kills everything in the namespace. */
noreturn void holder_end(struct holder *holder);
