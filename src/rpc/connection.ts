/** One connection being served, whatever its framing. */
export interface ServedConnection {
  /** Takes no new calls, and closes the connection once those in progress are answered. */
  drain(): void
}

/** The largest encoded message of a call, both ways and in both framings. */
export const MAX_MESSAGE_BYTES = 4 * 1024 * 1024

/** How many calls one connection may have in progress: a host polls three streams a process, and waits for each. */
export const MAX_OPEN_CALLS = 1024
