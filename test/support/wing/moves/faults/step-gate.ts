import { createServer, type Server, type Socket } from 'node:net'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { temporaryFolder } from '../../../temporary-folder.ts'

/** `move` is of the source, `arrival` of the target. */
export type HeldStep = `${'move' | 'arrival'} ${string}`

/** What a daemon of stepping-daemon.ts is told by. */
export class StepGate {
  readonly path: string
  /** Called before each step of a move, which begins once it resolves. */
  before: (step: HeldStep) => Promise<void> = async () => {}
  readonly #server: Server
  #socket: Socket | undefined
  /** By how much the clock of its daemons is another one than the system's. */
  #movedMs = 0

  private constructor(path: string) {
    this.path = path
    this.#server = createServer((socket) => {
      this.#socket = socket
      this.#tellClock()
      const lines = createInterface({ input: socket }).on('line', (step) => {
        void this.before(step as HeldStep).then(() => socket.writable && socket.write('go\n'))
      })
      // A daemon is killed.
      for (const each of [socket, lines]) each.on('error', () => {})
    })
  }

  static async listen(): Promise<StepGate> {
    const gate = new StepGate(join(temporaryFolder(), 'gate.sock'))
    await new Promise<void>((resolve) => gate.#server.listen(gate.path, resolve))
    return gate
  }

  /** The clock of this daemon, and of those that follow it, jumps. */
  moveClock(byMs: number): void {
    this.#movedMs += byMs
    this.#tellClock()
  }

  #tellClock(): void {
    if (this.#socket?.writable) this.#socket.write(`clock ${this.#movedMs}\n`)
  }

  close(): void {
    this.#server.close()
  }
}
