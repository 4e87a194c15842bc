#pragma once

/* The messages of the broker, vminit and the agent. All numbers are little endian. */

#include <stdint.h>

#define BROKER_PROTOCOL_VERSION 3

/* Between vminit and the broker: one SOCK_SEQPACKET message. */
enum vminit_message_kind {
  VMINIT_AGENT = 1, /* vminit -> broker: agent `pid` starts; with the broker's end of its control socket (SCM_RIGHTS) */
  VMINIT_HUNG = 2,  /* broker -> vminit: kill agent `pid` */
  VMINIT_PING = 3,  /* vminit -> broker: `pid` is a number, which PONG returns */
  VMINIT_PONG = 4,  /* broker -> vminit */
  VMINIT_LEAVE = 5, /* vminit -> broker: power-off in at most `pid` ms; the broker returns it when no client waits */
};

struct vminit_message {
  uint32_t version;
  uint32_t kind;
  uint32_t pid; /* or a number (PING, PONG), or milliseconds (LEAVE) */
  uint32_t reserved;
};
_Static_assert(sizeof(struct vminit_message) == 16, "16 bytes on the wire");

/* Between the agent and the broker: one SOCK_SEQPACKET message of the control socket. */
enum control_kind {
  /* agent -> broker */
  CONTROL_HELLO = 1, /* first, once, with struct hello and the listening socket; `a`: version, `b`: hang limit in ms */
  CONTROL_PONG = 2,  /* `a`: number of the PING */
  CONTROL_STOP = 3,  /* accept no more connections: clients wait in the listening socket's queue */
  CONTROL_CLOSE = 4, /* `a`: id of a connection to close once its answers are written to the client */
  CONTROL_CONFIRM = 5, /* `a`: number of a request whose outcome the agent has acted upon */
  /* broker -> agent */
  CONTROL_CONNECTION = 16,    /* `a`: connection id; with its socket (SCM_RIGHTS); struct peer_address and texts */
  CONTROL_REQUEST_STATE = 17, /* `a`: request number, `flags` its enum request_state; further struct request_pair */
  CONTROL_READY = 18,         /* once, after all state from before this agent */
  CONTROL_PING = 19,          /* `a`: number, which PONG returns */
  CONTROL_FILE = 20,          /* `a`: request number, `b`: connection id; with its frame in a file (SCM_RIGHTS) */
};

struct control_header {
  uint32_t kind;
  uint32_t flags;
  uint64_t a;
  uint64_t b;
};
_Static_assert(sizeof(struct control_header) == 24, "24 bytes on the wire");

#define HELLO_ALLOW_LOOPBACK 1u /* vsock peers of this guest (CID 1) may connect */

/* The payload of CONTROL_HELLO. */
struct __attribute__((packed)) hello {
  uint32_t max_connections;
  uint32_t first_bytes_ms;    /* how long the first bytes of a connection, or a frame header, may take */
  uint32_t max_payload_bytes; /* of a frame in either direction */
  uint64_t budget_bytes;      /* for the frames of all connections together */
  unsigned char tcp_peer[16]; /* the only address that may connect by TCP, an IPv4 one as ::ffff:a.b.c.d; zeros: any */
};
_Static_assert(sizeof(struct hello) == 36, "36 bytes on the wire");

#define CONNECTION_GRPC 1u /* the socket is the client's own; the broker forgets it */

/* Begins the payload of CONTROL_CONNECTION. Then: address text, u32 length of the first bytes, first bytes. */
struct peer_address {
  uint32_t kind; /* PEER_… */
  uint32_t cid;  /* of a vsock peer */
  uint32_t port; /* of a vsock or TCP peer */
  uint32_t text_bytes;
};
enum peer_kind { PEER_UNIX = 0, PEER_VSOCK = 1, PEER_TCP = 2 };

enum request_state {
  REQUEST_OPEN = 0,     /* it will be sent again */
  REQUEST_WRITTEN = 1,  /* its answer was written to the client */
  REQUEST_DROPPED = 2,  /* the client is gone: its answer is never written */
  REQUEST_ANSWERED = 3, /* the broker has stored its whole answer: WRITTEN or DROPPED follows */
};

struct request_pair {
  uint64_t number;
  uint64_t state; /* enum request_state */
};

/* A data socket carries envelopes, each followed by a ttRPC frame or by nothing. */
enum envelope_kind {
  /* broker -> agent */
  ENVELOPE_REQUEST = 1,   /* with a whole frame of the client, of any type */
  ENVELOPE_OVERSIZED = 2, /* with only the header of a frame whose payload was skipped */
  ENVELOPE_WRITTEN = 3,   /* the kernel has taken the whole answer for the client */
  ENVELOPE_DROPPED = 4,   /* the client is gone */
  ENVELOPE_LOST = 5,      /* last: the client was lost with the device, and has not hung up */
  /* agent -> broker */
  ENVELOPE_ANSWER = 16,  /* with a whole frame for the client */
  ENVELOPE_NOTHING = 17, /* the request is done and has no answer */
  ENVELOPE_CONFIRM = 18, /* as CONTROL_CONFIRM */
};

struct envelope {
  uint32_t kind;
  uint32_t flags;
  uint64_t number; /* of the request: broker's start << 40 plus a counter */
  union {
    uint64_t age_ns;      /* of a request: time since its whole frame arrived */
    uint64_t file_offset; /* of an answer with ANSWER_FILE: where its bytes begin */
  };
  uint32_t frame_bytes; /* of the whole frame */
  uint32_t file_bytes;  /* how many of them, at the end, are in the file; else 0 */
};
_Static_assert(sizeof(struct envelope) == 32, "32 bytes on the wire");

#define REQUEST_SENT_BEFORE 1u /* of ENVELOPE_REQUEST and _OVERSIZED: it was sent to an earlier agent */
#define OVERSIZED_NO_ROOM 2u   /* of ENVELOPE_OVERSIZED: not too large, but without room */
#define REQUEST_FILE 4u        /* of ENVELOPE_REQUEST: CONTROL_FILE has brought the frame; none follows */
#define ANSWER_KEEP 1u         /* of ENVELOPE_ANSWER: report its outcome and keep it until CONFIRM */
#define ANSWER_FILE 2u         /* of ENVELOPE_ANSWER: a file in memory comes with the envelope (SCM_RIGHTS) */

/* The header of a ttRPC frame: length of the payload (u32), stream id (u32), type (u8), flags (u8); big endian. */
#define FRAME_HEADER_BYTES 10
