#pragma once

/* The tables are static: the holder allocates nothing. */
#define CHILDREN_MAX 16
#define RINGS_MAX 2048
#define RELAYS_MAX 64

/* Attached clients. The other connections send commands. */
#define CLIENTS_MAX 1024
#define CONNECTIONS_MAX (CLIENTS_MAX + 64)

/* Of a command with its newline. The sender must get it into the socket whole. */
#define LINE_BYTES_MAX 131072
#define WORDS_MAX 2048

/* Of a child. Its log's file is called after it. */
#define NAME_BYTES_MAX 32

/* The highest number of a descriptor that a program is given. */
#define WALL_DESCRIPTORS_MAX 1000

/* Of a kernel, an initrd or a firmware item that only root may read. */
#define WALL_COPY_BYTES_MAX (1ll << 30)

/* For the memory of another holder, which gives it at once. */
#define GIVE_TIMEOUT_MS 4000

/* From now to the end of a lease. */
#define LEASE_SECONDS_MAX 3600

/* Of TLS, with its header (RFC 8446, 5.2). */
#define RECORD_BYTES_MAX (5 + (1 << 14) + 256)

/* Of one read. */
#define CHUNK_BYTES 65536

/* A ring keeps exactly these last bytes. */
#ifndef CONSOLE_RING_BYTES
#define CONSOLE_RING_BYTES 1048576
#define STREAM_RING_BYTES 262144
#endif

/*
 * A source waits this long per revolution of its ring for clients that the next bytes would overtake, then they are
 * closed. So clients slow no console below 2 MB/s, and lose no byte when they read faster.
 */
#define LAG_WAIT_MS 500

/* A log's file is renamed to NAME.log.1 when it has grown to this. */
#define LOG_BYTES_MAX 524288

/* Between the fork and the exec of a child. */
#define START_TIMEOUT_MS 5000

/* Done in a row before other events are handled. */
#define REAP_BATCH 1024
#define LINES_BATCH 64
