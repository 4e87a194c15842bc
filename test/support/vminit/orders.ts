export type AgentEvent =
  | { readonly event: 'started'; readonly pid: number; readonly arguments: readonly string[] }
  | { readonly event: 'record'; readonly hex: string }
  | { readonly event: 'signal'; readonly name: string }
  | { readonly event: 'shell-ended'; readonly pid: number; readonly status: number | null }
  | { readonly event: 'sent' }

export type AgentOrder =
  /** Runs a shell script as a child; the processes that it leaves behind become orphans. */
  | { readonly order: 'shell'; readonly script: string }
  | { readonly order: 'send'; readonly hex: string }
  | { readonly order: 'exit'; readonly status: number }
