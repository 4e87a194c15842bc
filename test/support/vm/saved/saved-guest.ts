import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, constants, copyFileSync, openSync, readFileSync, writeSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { cached } from '../../../../src/build/cache.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../../../src/build/temporary-folder.ts'
import { tool } from '../../../../src/build/tool.ts'
import { connectAgent } from '../../../../src/client/connection/connect-agent.ts'
import { dial } from '../../../../src/client/connection/dial.ts'
import { type Agent, agentOf } from '../../../../src/client/container/container-session.ts'
import { IntrospectionDefinition } from '../../../../src/gen/microvm/agent/v1/introspection.ts'
import { LifecycleDefinition } from '../../../../src/gen/microvm/agent/v1/lifecycle.ts'
import type { QmpClient } from '../../../../src/host/qemu/qmp/client.ts'
import { connectQmp } from '../../../../src/host/qemu/qmp/connect.ts'
import { chooseLink } from '../../../../src/host/qemu/vsock/choose-link.ts'
import { ensureContainerRoot } from '../../../../src/image/container-root.ts'
import { clientFor, type ServiceClient } from '../../../../src/rpc/client.ts'
import type { TtrpcClient } from '../../../../src/rpc/ttrpc/client.ts'
import { endChild } from '../../processes.ts'
import { progress } from '../boot-guest.ts'
import { goOnFrom, limit, run, savableWords, saveState } from './saving.ts'

/** A running machine of a guest that can be saved. The agent is reached over QEMU's user network. */
export interface MovableGuest {
  readonly agent: Agent
  readonly introspection: ServiceClient<typeof IntrospectionDefinition>
  readonly lifecycle: ServiceClient<typeof LifecycleDefinition>
  readonly rootSource: string
  readonly qmp: QmpClient
  consoleText(): string
  /** Calls over a new connection from then on. */
  dialAgain(): Promise<void>
  /** Makes another connection. Resolves once a Check over it is answered. */
  connect(): Promise<Pick<MovableGuest, 'introspection' | 'lifecycle'> & { close(): void }>
  /** Stops the machine; its host's time of day goes on by so much before the guest does. */
  pause(seconds: number): Promise<void>
  /** Saves the guest's state beside its memory, and ends the machine. */
  save(): Promise<void>
  /** Ends QEMU. Does nothing when it has ended. */
  stop(): Promise<void>
}

/** A second card, which leads nowhere. */
export const SECOND_MAC = '52:54:00:00:01:00'

/** A guest whose machines share one folder. A clone writes to copies of memory and disk. */
export class SavedGuest {
  readonly folder = makeTemporaryFolder(tmpdir())
  readonly #words: readonly string[]
  readonly #machines: MovableGuest[] = []

  constructor(words: readonly string[] = []) {
    this.#words = words
  }

  /** Boots the first machine, with a generation of vmgenid. */
  async boot(generation: string): Promise<MovableGuest> {
    copyFileSync(await ensureContainerRoot(progress), this.#disk(0))
    return this.#start(0, generation, false)
  }

  /** Starts a clone of the saved guest. `index` is 1 or more, `moved` by how many seconds its host's time has gone on. */
  async restore(index: number, generation: string, moved = 0): Promise<MovableGuest> {
    await tool('cp', ['--sparse=always', this.#disk(0), this.#disk(index)], { debianPackage: 'coreutils' })
    return this.#start(index, generation, true, moved)
  }

  #disk(index: number): string {
    return join(this.folder, `root-${index}.ext4`)
  }

  async close(): Promise<void> {
    await Promise.all(this.#machines.map((each) => each.stop()))
    removeTemporaryFolder(this.folder)
  }

  async #start(index: number, generation: string, isRestored: boolean, moved = 0): Promise<MovableGuest> {
    const link = await chooseLink({ override: 'tcp', progress })
    const { backend } = link
    const socket = join(this.folder, `qmp-${index}.sock`)
    const clock = join(this.folder, `clock-${index}`)
    const consoleFile = join(this.folder, `console-${index}`)
    writeSeconds(clock, moved)
    const machine = await savableWords({
      ...{ link, append: this.#words, socket, memory: join(this.folder, 'memory'), isRestored },
      // A clone copies what it writes.
      ...{ isPrivate: isRestored, disk: this.#disk(index) },
    })
    const card = `virtio-net-pci,mac=${SECOND_MAC},addr=0x6`
    const words = [...machine, '-device', card, '-device', `vmgenid,guid=${generation}`]
    const output = openSync(consoleFile, 'w')
    const environment = { ...process.env, LD_PRELOAD: await movedClock(), MOVED_CLOCK: clock }
    const child = spawn('qemu-system-x86_64', words, {
      stdio: ['ignore', output, output],
      env: environment,
    })
    closeSync(output)
    const consoleText = () => readFileSync(consoleFile, 'utf8')
    try {
      const qmp = await connectQmp(socket, limit())
      if (isRestored) await goOnFrom(qmp, join(this.folder, 'state'))
      const port = backend.kind === 'user-network' ? (backend.forwards?.[0]?.hostPort ?? 0) : 0
      const guest = await connected({ child, qmp, port, consoleText })
      const movable: MovableGuest = {
        ...guest,
        pause: async (seconds) => {
          await run(qmp, 'stop')
          writeSeconds(clock, moved + seconds)
          await run(qmp, 'cont')
        },
        save: async () => {
          await saveState(qmp, join(this.folder, 'state'))
          await guest.stop()
        },
      }
      this.#machines.push(movable)
      return movable
    } catch (error) {
      await endChild(child)
      throw new Error(`no guest; its console:\n${consoleText()}`, { cause: error })
    }
  }
}

async function connected(machine: {
  readonly child: ChildProcess
  readonly qmp: QmpClient
  readonly port: number
  readonly consoleText: () => string
}): Promise<Omit<MovableGuest, 'pause' | 'save'>> {
  const { child, qmp, port, consoleText } = machine
  const dialer = { connect: (signal: AbortSignal) => dial({ kind: 'tcp', host: '127.0.0.1', port }, signal) }
  let connection = await connectAgent(dialer, limit())
  const current: Pick<TtrpcClient, 'call'> = { call: (...words) => connection.call(...words) }
  const rootSource = '05'
  const stop = async () => {
    connection.close()
    qmp.close()
    if (child.exitCode !== null || child.signalCode !== null) return
    const ended = once(child, 'exit')
    child.kill('SIGKILL')
    await ended
  }
  const dialAgain = async () => {
    connection.close()
    connection = await connectAgent(dialer, limit())
  }
  const connect = async () => {
    const other = await connectAgent(dialer, limit())
    return { ...clientsOf(other), close: () => other.close() }
  }
  return {
    ...{ qmp, consoleText, rootSource, dialAgain, connect, stop },
    agent: agentOf(current),
    ...clientsOf(current),
  }
}

function clientsOf(connection: Pick<TtrpcClient, 'call'>): Pick<MovableGuest, 'introspection' | 'lifecycle'> {
  return {
    introspection: clientFor(IntrospectionDefinition, connection),
    lifecycle: clientFor(LifecycleDefinition, connection),
  }
}

function writeSeconds(file: string, seconds: number): void {
  const bytes = Buffer.alloc(8)
  bytes.writeBigInt64LE(BigInt(seconds))
  // In place, because QEMU has mapped the file.
  const fd = openSync(file, constants.O_RDWR | constants.O_CREAT)
  writeSync(fd, bytes, 0, bytes.length, 0)
  closeSync(fd)
}

async function movedClock(): Promise<string> {
  const source = join(import.meta.dirname, 'moved-clock.c')
  const folder = await cached('moved-clock', { files: [source], values: [] }, async (target) => {
    await tool(
      'gcc',
      ['-shared', '-fPIC', '-O2', '-Wall', '-Werror', '-o', join(target, 'moved-clock.so'), source],
      {
        debianPackage: 'gcc',
      },
    )
  })
  return join(folder, 'moved-clock.so')
}
