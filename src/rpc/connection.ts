export interface ServedConnection {
  /** Refuses new calls, and closes the connection once the open calls are answered. */
  drain(): void
}
