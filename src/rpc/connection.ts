/** One connection being served, whatever its framing. */
export interface ServedConnection {
  /** Takes no new calls, and closes the connection once those in progress are answered. */
  drain(): void
}
