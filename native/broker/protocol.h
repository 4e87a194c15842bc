#pragma once

/* What the broker exchanges with vminit and with the agent. All numbers are little endian, as the machine's own. */

#include <stdint.h>

#define BROKER_PROTOCOL_VERSION 1

/* Between vminit and the broker: one SOCK_SEQPACKET message. */
enum vminit_message_kind {
  VMINIT_AGENT = 1, /* vminit -> broker: an agent starts; with the broker's end of its control socket (SCM_RIGHTS) */
  VMINIT_HUNG = 2,  /* broker -> vminit: the agent must be killed */
  VMINIT_PING = 3,  /* vminit -> broker: `pid` is a number, to be returned by PONG */
  VMINIT_PONG = 4,  /* broker -> vminit */
  VMINIT_LEAVE = 5, /* vminit -> broker: the machine powers off, in `pid` ms at most; and back: no client waits */
};

struct vminit_message {
  uint32_t version;
  uint32_t kind;
  uint32_t pid; /* the agent's; of PING and PONG a number, of LEAVE a time */
  uint32_t reserved;
};
_Static_assert(sizeof(struct vminit_message) == 16, "16 bytes on the wire");

/* Between the agent and the broker: one SOCK_SEQPACKET message of the control socket each. */
enum control_kind {
  /* agent -> broker */
  CONTROL_HELLO = 1,   /* first, once; with the listening socket; `a` version, `b` hang limit in ms; struct hello */
  CONTROL_PONG = 2,    /* `a`: the number of the PING */
  CONTROL_STOP = 3,    /* accept no more connections: clients wait in the listening socket's queue */
  CONTROL_CLOSE = 4,   /* `a`: the id of a connection to close once all of its answers are written to the client */
  CONTROL_CONFIRM = 5, /* `a`: a request number whose outcome the agent has acted upon */
  /* broker -> agent */
  CONTROL_CONNECTION = 16,    /* `a`: connection id; with its socket (SCM_RIGHTS); struct peer_address and texts */
  CONTROL_REQUEST_STATE = 17, /* `a`: request number, `flags` its enum request_state; further struct request_pair */
  CONTROL_READY = 18,         /* once: everything of the time before this agent has been sent */
  CONTROL_PING = 19,          /* `a`: number, to be returned by PONG */
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
};
_Static_assert(sizeof(struct hello) == 20, "20 bytes on the wire");

#define CONNECTION_GRPC 1u /* the socket is the client's own, and the broker forgets it */

/* Begins the payload of CONTROL_CONNECTION. After it: the address, u32 length of the first bytes, the first bytes. */
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
  REQUEST_DROPPED = 2,  /* its answer never will be: the client is gone */
  REQUEST_ANSWERED = 3, /* its answer is stored whole in the broker: WRITTEN or DROPPED follows */
};

struct request_pair {
  uint64_t number;
  uint64_t state; /* enum request_state */
};

/* Between the agent and the broker: a data socket carries envelopes, each followed by a ttRPC frame or by nothing. */
enum envelope_kind {
  /* broker -> agent */
  ENVELOPE_REQUEST = 1,   /* with a whole frame of the client, of any type */
  ENVELOPE_OVERSIZED = 2, /* with the header alone of a frame whose payload was skipped */
  ENVELOPE_WRITTEN = 3,   /* the kernel has taken the whole answer for the client */
  ENVELOPE_DROPPED = 4,   /* it never will: the client is gone */
  /* agent -> broker */
  ENVELOPE_ANSWER = 16,  /* with a whole frame for the client */
  ENVELOPE_NOTHING = 17, /* the request is done and has no answer */
  ENVELOPE_CONFIRM = 18, /* as CONTROL_CONFIRM */
};

struct envelope {
  uint32_t kind;
  uint32_t flags;
  uint64_t number; /* of the request: the broker's start << 40, plus a running number */
  union {
    uint64_t age_ns;      /* of a request: the time since the whole frame had arrived */
    uint64_t file_offset; /* of an answer with FILE: where its bytes begin there */
  };
  uint32_t frame_bytes; /* of the whole frame */
  uint32_t file_bytes;  /* how many of them, at its end, are not in the socket but in the file; else 0 */
};
_Static_assert(sizeof(struct envelope) == 32, "32 bytes on the wire");

#define REQUEST_SENT_BEFORE 1u /* of ENVELOPE_REQUEST and _OVERSIZED: an earlier agent had it */
#define OVERSIZED_NO_ROOM 2u   /* of ENVELOPE_OVERSIZED: it was not too large, but the limits left no room for it */
#define ANSWER_KEEP 1u         /* of ENVELOPE_ANSWER: report its outcome and keep it until CONFIRM */
#define ANSWER_FILE 2u         /* of ENVELOPE_ANSWER: a file in memory comes with the envelope (SCM_RIGHTS) */

/* The header of a ttRPC frame: length of the payload (u32), stream id (u32), type (u8), flags (u8); big endian. */
#define FRAME_HEADER_BYTES 10
