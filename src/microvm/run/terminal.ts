/** A terminal to copy from and to, as far as it is needed here (`process.stdin`, `process.stdout`). */
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

export interface TerminalSize {
  readonly rows: number
  readonly columns: number
}

/** What a container's terminal measures when ours cannot be asked. */
const USUAL_SIZE: TerminalSize = { rows: 24, columns: 80 }

export function terminalSize({ stdout }: TerminalStreams): TerminalSize {
  const { rows, columns } = stdout
  return stdout.isTTY && rows !== undefined && columns !== undefined && rows > 0
    ? { rows, columns }
    : USUAL_SIZE
}

/** Passes keys on as they are, Ctrl-C included, until the returned function is called. */
export function rawKeys({ stdin }: TerminalStreams): () => void {
  if (!stdin.isTTY) return () => {}
  stdin.setRawMode?.(true)
  return () => stdin.setRawMode?.(false)
}

/** Calls `resized` at every change of the terminal's size until the returned function is called. */
export function onResize(streams: TerminalStreams, resized: (size: TerminalSize) => void): () => void {
  const listener = () => resized(terminalSize(streams))
  streams.stdout.on('resize', listener)
  return () => streams.stdout.off('resize', listener)
}
