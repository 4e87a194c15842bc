import { spawnSync } from 'node:child_process'

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

const DEFAULT_SIZE: TerminalSize = { rows: 24, columns: 80 }

/** The size of the tool's terminal, or 24 × 80. */
export function terminalSize({ stdout }: TerminalStreams): TerminalSize {
  const { rows, columns } = stdout
  return stdout.isTTY && rows !== undefined && columns !== undefined && rows > 0
    ? { rows, columns }
    : DEFAULT_SIZE
}

/** Sets the terminal to raw mode until the returned function is called. A suspended tool restores the mode. */
export function rawKeys({ stdin }: TerminalStreams): () => void {
  if (!stdin.isTTY) return () => {}
  const setRaw = () => {
    stdin.setRawMode?.(true)
    // Node leaves ONLCR on, which would add a second \r to that of the container's terminal.
    spawnSync('stty', ['-opost'], { stdio: ['inherit', 'ignore', 'ignore'] })
  }
  const suspend = () => {
    stdin.setRawMode?.(false)
    process.kill(process.pid, 'SIGSTOP')
  }
  const resume = () => {
    // The shell may have changed the mode. Node skips a change to raw while it believes the mode to be raw.
    stdin.setRawMode?.(false)
    setRaw()
  }
  setRaw()
  process.on('SIGTSTP', suspend).on('SIGCONT', resume)
  return () => {
    process.off('SIGTSTP', suspend).off('SIGCONT', resume)
    stdin.setRawMode?.(false)
  }
}

/** Calls `resized` at each change of size, until the returned function is called. */
export function onResize(streams: TerminalStreams, resized: (size: TerminalSize) => void): () => void {
  const listener = () => resized(terminalSize(streams))
  // The size may have changed while the tool was suspended, without a signal.
  const resume = () => process.kill(process.pid, 'SIGWINCH')
  streams.stdout.on('resize', listener)
  process.on('SIGCONT', resume)
  return () => {
    streams.stdout.off('resize', listener)
    process.off('SIGCONT', resume)
  }
}
