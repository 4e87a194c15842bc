/** What the test agent reports, one JSON line each. */
export type AgentEvent =
  | { readonly event: 'started'; readonly pid: number; readonly arguments: readonly string[] }
  | { readonly event: 'record'; readonly hex: string }
  | { readonly event: 'signal'; readonly name: string }
  | { readonly event: 'shell-ended'; readonly pid: number; readonly status: number | null }
  | { readonly event: 'sent' }

/** What the test agent can be told to do, one JSON line each. */
export type AgentOrder =
  /** Run a shell script as a child; what it leaves behind becomes orphans. */
  | { readonly order: 'shell'; readonly script: string }
  /** Write these bytes to the channel. */
  | { readonly order: 'send'; readonly hex: string }
  | { readonly order: 'exit'; readonly status: number }
