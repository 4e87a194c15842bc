import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, copyFileSync, existsSync, openSync, readFileSync, rmSync } from 'node:fs'
import { createServer, type Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../../src/build/temporary-folder.ts'
import type { Address } from '../../../src/client/connection/address.ts'
import { connectAgent } from '../../../src/client/connection/connect-agent.ts'
import { dial } from '../../../src/client/connection/dial.ts'
import { hostTscKhz } from '../../../src/host/qemu/host.ts'
import { qemuArguments } from '../../../src/host/qemu/qemu-arguments.ts'
import type { QmpClient } from '../../../src/host/qemu/qmp/client.ts'
import { connectQmp } from '../../../src/host/qemu/qmp/connect.ts'
import { chooseLink, findVsockDaemon } from '../../../src/host/qemu/vsock/choose-link.ts'
import { AGENT_PORT, type GuestLink } from '../../../src/host/qemu/vsock/guest-link.ts'
import { ensureContainerRoot } from '../../../src/image/container-root.ts'
import { ensureImage } from '../../../src/image/ensure-image.ts'
import { type GuestParts, guestSpec } from '../../../src/microvm/run/guest-spec.ts'
import type { TtrpcClient } from '../../../src/rpc/ttrpc/client.ts'
import { endChild } from '../processes.ts'
import { CRUN, progress } from '../vm/boot-guest.ts'

/** `stop`: QEMU stops the guest, whose vsock was unplugged. `restore`: the guest is saved, and goes on in another QEMU. */
export type Way = 'stop' | 'restore'

const MEMORY_MIB = 512
const IGNORE_SHARED = { capabilities: [{ capability: 'x-ignore-shared', state: true }] }
/** A guest's vsock daemon was deaf once in seven when the host connected right after the plug, never after this time. */
const PLUGGED_MS = 500
const LIMIT_MS = 120_000

/** A guest that stops and goes on. Its busybox disk is at `05`. */
export class FreezingMachine {
  readonly #folder = makeTemporaryFolder(tmpdir())
  readonly #way: Way
  #link: GuestLink | undefined
  #qemu: ChildProcess | undefined
  #qmp: QmpClient | undefined
  #daemon: ChildProcess | undefined
  #plugs = 0
  readonly #servers: Server[] = []

  constructor(way: Way) {
    this.#way = way
  }

  get consoleText(): string {
    const file = this.#path('console')
    return existsSync(file) ? readFileSync(file, 'utf8') : ''
  }

  async boot(words: readonly string[]): Promise<void> {
    copyFileSync(await ensureContainerRoot(progress), this.#path('busybox'))
    const link = await chooseLink({ override: 'tcp', progress })
    this.#link = this.#way === 'restore' ? link : { ...link, commandLine: [] }
    await this.#start(words, false)
    if (this.#way === 'stop') await this.#plug()
  }

  /** Connects to the agent, and waits until it answers. */
  connect(): Promise<TtrpcClient> {
    const address = this.#address()
    return connectAgent({ connect: (signal) => dial(address, signal) }, AbortSignal.timeout(LIMIT_MS))
  }

  /** Stops the guest for some time. Resolves when it runs again, and can be connected to. */
  async freeze(words: readonly string[], ms: number): Promise<void> {
    if (this.#way === 'stop') {
      await this.#unplug()
      await this.#command('stop')
      await delay(ms)
      await this.#command('cont')
      await this.#plug()
      return
    }
    await this.#command('stop')
    await this.#command('migrate-set-capabilities', IGNORE_SHARED)
    await this.#command('migrate', { uri: `exec:cat > ${this.#path('state')}` })
    await this.#until('query-migrate', ['completed'])
    await this.#endQemu()
    await delay(ms)
    await this.#start(words, true)
    await this.#command('migrate-set-capabilities', IGNORE_SHARED)
    await this.#command('migrate-incoming', { uri: `exec:cat ${this.#path('state')}` })
    await this.#until('query-status', ['paused', 'running'])
    await this.#command('cont')
  }

  /** Gives what the guest writes to a port, over any number of connections; in a guest without vsock nothing comes. */
  async listen(port: number, onText: (text: string) => void): Promise<void> {
    const server = createServer((socket) =>
      socket
        .setEncoding('utf8')
        .on('data', onText)
        .on('error', () => {}),
    )
    this.#servers.push(server)
    await once(server.listen(`${this.#path('vsock.sock')}_${port}`), 'listening')
  }

  async close(): Promise<void> {
    await this.#endQemu()
    for (const server of this.#servers) server.close()
    if (this.#daemon !== undefined) await endChild(this.#daemon)
    removeTemporaryFolder(this.#folder)
  }

  #path(name: string): string {
    return join(this.#folder, name)
  }

  #address(): Address {
    if (this.#way === 'stop') return { kind: 'hvsock', path: this.#path('vsock.sock'), port: AGENT_PORT }
    const { backend } = this.#link ?? {}
    const [forward] = backend?.kind === 'user-network' ? (backend.forwards ?? []) : []
    return { kind: 'tcp', host: '127.0.0.1', port: forward?.hostPort ?? 0 }
  }

  async #start(append: readonly string[], isRestored: boolean): Promise<void> {
    if (this.#link === undefined) throw new Error('not booted')
    const parts: GuestParts = {
      ...{
        machine: 'pc-q35-7.2',
        memoryMib: MEMORY_MIB,
        cpus: 1,
        append: [CRUN, ...append],
        link: this.#link,
      },
      boot: await ensureImage({ progress }),
      containerRoot: undefined,
    }
    const socket = this.#path('qmp.sock')
    rmSync(socket, { force: true })
    const machine = qemuArguments(guestSpec(parts), {
      ...{ acceleration: 'tcg', qmp: { socket }, tscKhz: hostTscKhz(), isPaused: isRestored },
    })
    const memory = `memory-backend-file,id=memory,size=${MEMORY_MIB}M,mem-path=${this.#path('memory')},share=on`
    const disk = `driver=raw,node-name=busybox,file.driver=file,file.filename=${this.#path('busybox')}`
    const words = [
      ...machine.map((word) => (word.startsWith('pc-q35') ? `${word},memory-backend=memory` : word)),
      ...['-object', memory],
      ...['-blockdev', disk, '-device', 'virtio-blk-pci,drive=busybox,addr=0x5'],
      ...['-device', 'pcie-root-port,id=plug,chassis=7,addr=0x7'],
      ...(isRestored ? ['-incoming', 'defer'] : []),
      // The state is saved by a program.
    ].filter((word, at, all) => word !== '-sandbox' && all[at - 1] !== '-sandbox')
    const output = openSync(this.#path('console'), 'a')
    this.#qemu = spawn('qemu-system-x86_64', words, { stdio: ['ignore', output, output] })
    closeSync(output)
    this.#qmp = await connectQmp(socket, limit())
  }

  async #endQemu(): Promise<void> {
    this.#qmp?.close()
    if (this.#qemu !== undefined) await endChild(this.#qemu)
  }

  async #plug(): Promise<void> {
    const [program, socket, guest] = [
      await findVsockDaemon(progress),
      this.#path('vhost.sock'),
      this.#path('vsock.sock'),
    ]
    for (const path of [socket, guest]) rmSync(path, { force: true })
    const daemon = spawn(program, ['--vm', `guest-cid=3,socket=${socket},uds-path=${guest}`], {
      stdio: 'ignore',
    })
    this.#daemon = daemon
    while (!existsSync(socket)) {
      if (daemon.exitCode !== null) throw new Error(`${program} ended`)
      await delay(5)
    }
    this.#plugs += 1
    const id = `vsock${this.#plugs}`
    const backend = {
      type: 'socket',
      data: { addr: { type: 'unix', data: { path: socket } }, server: false },
    }
    await this.#command('chardev-add', { id, backend })
    await this.#command('device_add', { driver: 'vhost-user-vsock-pci', id, chardev: id, bus: 'plug' })
    await delay(PLUGGED_MS)
  }

  async #unplug(): Promise<void> {
    const id = `vsock${this.#plugs}`
    const removed = this.#qmp?.event(
      ({ name, data }) => name === 'DEVICE_DELETED' && data.device === id,
      limit(),
    )
    await this.#command('device_del', { id })
    await removed
    await this.#command('chardev-remove', { id })
    if (this.#daemon === undefined) return
    const ended = this.#daemon.exitCode === null ? once(this.#daemon, 'exit') : undefined
    this.#daemon.kill('SIGKILL')
    await ended
    this.#daemon = undefined
  }

  async #until(query: string, wanted: readonly string[]): Promise<void> {
    for (;;) {
      const { status } = (await this.#command(query)) as { readonly status?: string }
      if (status !== undefined && wanted.includes(status)) return
      if (status === 'failed') throw new Error(`${query}: failed`)
      await delay(5)
    }
  }

  #command(execute: string, args: Readonly<Record<string, unknown>> = {}): Promise<unknown> {
    if (this.#qmp === undefined) throw new Error('no monitor')
    return this.#qmp.command({ execute, arguments: args }, limit())
  }
}

function limit(): AbortSignal {
  return AbortSignal.timeout(LIMIT_MS)
}
