/** The events that the test agent reports, one JSON line each. */
export type AgentEvent =
  | { readonly event: 'started'; readonly pid: number; readonly arguments: readonly string[] }
  | { readonly event: 'record'; readonly hex: string }
  | { readonly event: 'signal'; readonly name: string }
  | { readonly event: 'shell-ended'; readonly pid: number; readonly status: number | null }
  | { readonly event: 'sent' }

/** The orders that the test agent accepts, one JSON line each. */
export type AgentOrder =
  /** Run a shell script as a child; processes that it leaves behind become orphans. */
  | { readonly order: 'shell'; readonly script: string }
  /** Write these bytes to the channel. */
  | { readonly order: 'send'; readonly hex: string }
  | { readonly order: 'exit'; readonly status: number }
