import { abortable } from '../../base/abort.ts'
import { messageOf } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { Os } from '../../os/os.ts'
import { killSession } from '../../os/process/kill-session.ts'
import type { RunningProgram } from '../../os/process/tools.ts'
import type { HostAddress } from '../../os/sockets/host-sockets.ts'
import type { Fd, RelayOptions, RelayResult } from '../../os/streams/streams.ts'
import { listenForHost } from '../host-listener.ts'
import { findShells, noShell } from './find-shells.ts'

const MOST_CONSOLES = 8

/** How long output is relayed after the shell's end; a daemon may keep the terminal open. */
const DRAIN_MS = 500

const SHELL_ENDED = 'shell ended'
const CONNECTION_CLOSED = 'connection closed'

const ENVIRONMENT = { HOME: '/', TERM: 'linux' }

export interface ConsoleContext {
  readonly os: Pick<
    Os,
    'clock' | 'consoles' | 'descriptors' | 'files' | 'hostSockets' | 'streams' | 'system' | 'tools'
  >
  readonly log: Logger
  /** Accepts connections of processes in this guest too, for tests. */
  readonly allowLoopback: boolean
  /** Holds a file for each open session, named by its pid; the next agent ends the sessions that it finds here. */
  readonly folder: string
}

/** Shells for debugging the guest, each on a terminal of its own. */
export class DebugConsole {
  readonly #dependencies: ConsoleContext
  readonly #open = new Set<Promise<void>>()
  readonly #closed = new AbortController()
  #stopListening: (() => void) | undefined

  constructor(dependencies: ConsoleContext) {
    this.#dependencies = dependencies
  }

  /** Kills processes of the previous agent that have ignored the hang-up. `isFirst`: no agent ran before. */
  async endLeft(isFirst: boolean): Promise<void> {
    const { os, folder } = this.#dependencies
    const names = isFirst ? [] : await os.files.list(folder)
    for (const name of names) await killSession(os, Number(name))
    await os.files.removeTree(folder)
  }

  /** Gives each connection of the host a shell. A port that cannot be opened is logged. */
  async listen(address: HostAddress): Promise<void> {
    const connection = (fd: Fd, peer: string) => this.#add(this.#serve(fd, peer))
    const options = { name: 'console-listener', address, connection }
    this.#stopListening = await listenForHost(this.#dependencies, options)
  }

  /** Never rejects. */
  async runOn(device: string): Promise<void> {
    await this.#add(this.#runOn(device))
  }

  /** Also ends whatever runs in the sessions of the consoles. */
  async close(): Promise<void> {
    this.#stopListening?.()
    this.#closed.abort()
    await Promise.all(this.#open)
  }

  async #add(session: Promise<void>): Promise<void> {
    const ended = session.catch((error) =>
      this.#dependencies.log.error('debug console failed', { error: messageOf(error) }),
    )
    this.#open.add(ended)
    await ended
    this.#open.delete(ended)
  }

  /** Takes ownership of `connection`. */
  async #serve(connection: Fd, peer: string): Promise<void> {
    const { streams, consoles } = this.#dependencies.os
    // `#add` counts this session only after the first await here.
    if (this.#open.size >= MOST_CONSOLES) {
      return this.#refuse(connection, peer, `${MOST_CONSOLES} are open, want no more`)
    }
    let pty: { readonly master: Fd; readonly terminal: Fd }
    try {
      pty = consoles.open()
    } catch (error) {
      return this.#refuse(connection, peer, messageOf(error))
    }
    let shell: Shell
    try {
      shell = await this.#startShell(pty.terminal, [])
    } catch (error) {
      streams.close(pty.master)
      return this.#refuse(connection, peer, messageOf(error))
    } finally {
      streams.close(pty.terminal)
    }
    await this.#relay(connection, pty.master, shell, peer)
  }

  /** Relays until the shell ends or the host closes the connection, then kills the rest of the session. */
  async #relay(connection: Fd, master: Fd, { path, program }: Shell, peer: string): Promise<void> {
    const { os, log } = this.#dependencies
    const { clock, streams } = os
    log.info('debug console opened', { peer, shell: path, shellPid: program.pid })
    const [stop, drain, over] = [new AbortController(), new AbortController(), new AbortController()]
    let moved: ReturnType<typeof moveBytes>
    try {
      moved = moveBytes(streams, connection, master, { stop: stop.signal, drain: drain.signal })
    } catch (error) {
      await this.#endSession(program)
      throw error
    }
    const { input, output } = moved
    let hasTerminalEnded = false
    void output.then(({ errno }) => {
      hasTerminalEnded = errno === undefined
    })
    // The terminal may end before the exit of the shell is reported.
    let reason = await this.#untilClosed(
      Promise.race([
        program.exitCode.then(() => SHELL_ENDED),
        Promise.race([input, output]).then(() => (hasTerminalEnded ? SHELL_ENDED : CONNECTION_CLOSED)),
      ]),
    )
    await this.#endSession(program)
    if (reason === SHELL_ENDED) {
      clock.sleep(DRAIN_MS, over.signal).then(
        () => drain.abort(),
        () => {},
      )
      const { errno } = await output
      over.abort()
      // The host closed first: that hangs up the terminal, and the shell's exit may be reported earlier.
      if (errno === 'EPIPE' || errno === 'ECONNRESET') reason = CONNECTION_CLOSED
    }
    stop.abort()
    await Promise.all([input, output])
    log.info('debug console closed', { peer, reason })
  }

  async #runOn(device: string): Promise<void> {
    const { os, log } = this.#dependencies
    const terminal = os.consoles.openDevice(device)
    let shell: Shell
    try {
      shell = await this.#startShell(terminal, ['-i'])
    } finally {
      os.streams.close(terminal)
    }
    const { path, program } = shell
    log.info('debug console opened', { device, shell: path, shellPid: program.pid })
    const reason = await this.#untilClosed(program.exitCode.then(() => SHELL_ENDED))
    await this.#endSession(program)
    log.info('debug console closed', { device, reason })
  }

  /** Resolves with `reason`, or earlier when all consoles are closed. */
  #untilClosed(reason: Promise<string>): Promise<string> {
    return abortable(reason, this.#closed.signal).catch(() => 'the agent stops')
  }

  /** Throws the failures of all shells when none can be started. */
  async #startShell(terminal: Fd, words: readonly string[]): Promise<Shell> {
    const { folder, os } = this.#dependencies
    const { files, tools } = os
    const { found, problems } = await findShells(files)
    const failures = [...problems]
    for (const path of found) {
      try {
        const program = await tools.startOnTerminal([path, ...words], terminal, ENVIRONMENT)
        await files.makeDirectories(folder)
        await files.write(`${folder}/${program.pid}`, '')
        return { path, program }
      } catch (error) {
        failures.push(messageOf(error))
      }
    }
    throw new Error(noShell(failures))
  }

  async #endSession(program: RunningProgram): Promise<void> {
    const { os, log, folder } = this.#dependencies
    const alive = await killSession(os, program.pid)
    if (alive.length > 0) {
      log.warn('processes of a debug console not ended', { pids: alive.join(', ') })
      return
    }
    await program.exitCode
    await os.files.removeFile(`${folder}/${program.pid}`)
  }

  #refuse(connection: Fd, peer: string, reason: string): void {
    const { os, log } = this.#dependencies
    log.warn('debug console refused', { peer, reason })
    try {
      // A new connection has room for one line.
      os.streams.tryWrite(connection, Buffer.from(`debug console: ${reason}\r\n`))
    } catch {
      // The host has gone.
    }
    os.streams.close(connection)
  }
}

/** Relays both ways until one side ends. Owns both descriptors, and closes them before it throws. */
function moveBytes(
  streams: Os['streams'],
  connection: Fd,
  master: Fd,
  { stop, drain }: { readonly stop: AbortSignal; readonly drain: AbortSignal },
): { readonly input: Promise<RelayResult>; readonly output: Promise<RelayResult> } {
  const open = new Set([connection, master])
  const duplicate = (fd: Fd) => {
    const copy = streams.duplicate(fd)
    open.add(copy)
    return copy
  }
  const relayed = (source: Fd, target: Fd, options: RelayOptions) => {
    const result = streams.relay(source, target, { ...options, signal: stop })
    open.delete(source)
    open.delete(target)
    return result
  }
  try {
    const input = relayed(duplicate(connection), duplicate(master), {})
    return { input, output: relayed(master, connection, { drain, shutsDown: true }) }
  } catch (error) {
    for (const fd of open) streams.close(fd)
    throw error
  }
}

interface Shell {
  readonly path: string
  readonly program: RunningProgram
}
