/** The members of `process.stdin` and `process.stdout` that are used for a terminal. */
export interface TerminalStreams {
  readonly stdin: { readonly isTTY?: boolean; setRawMode?(raw: boolean): unknown }
  readonly stdout: {
    readonly isTTY?: boolean
    readonly rows?: number
    readonly columns?: number
    on(event: 'resize', listener: () => void): unknown
    off(event: 'resize', listener: () => void): unknown
  }
}

/** The size of a terminal in characters. */
export interface TerminalSize {
  readonly rows: number
  readonly columns: number
}

/** The size of a container's terminal when the tool's own size is unknown. */
const DEFAULT_SIZE: TerminalSize = { rows: 24, columns: 80 }

/** The size of the tool's terminal, or 24 × 80. */
export function terminalSize({ stdout }: TerminalStreams): TerminalSize {
  const { rows, columns } = stdout
  return stdout.isTTY && rows !== undefined && columns !== undefined && rows > 0
    ? { rows, columns }
    : DEFAULT_SIZE
}

/** Puts the terminal into raw mode, in which Ctrl-C is a key, until the returned function is called. */
export function rawKeys({ stdin }: TerminalStreams): () => void {
  if (!stdin.isTTY) return () => {}
  stdin.setRawMode?.(true)
  return () => stdin.setRawMode?.(false)
}

/** Calls `resized` whenever the terminal's size changes, until the returned function is called. */
export function onResize(streams: TerminalStreams, resized: (size: TerminalSize) => void): () => void {
  const listener = () => resized(terminalSize(streams))
  streams.stdout.on('resize', listener)
  return () => streams.stdout.off('resize', listener)
}
