import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, copyFileSync, existsSync, openSync, readFileSync, rmSync } from 'node:fs'
import { createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../../src/build/temporary-folder.ts'
import type { Address } from '../../../src/client/connection/address.ts'
import { connectAgent } from '../../../src/client/connection/connect-agent.ts'
import { dial } from '../../../src/client/connection/dial.ts'
import type { QmpClient } from '../../../src/host/qemu/qmp/client.ts'
import { connectQmp } from '../../../src/host/qemu/qmp/connect.ts'
import { chooseLink } from '../../../src/host/qemu/vsock/choose-link.ts'
import { vsockStarts } from '../../../src/host/qemu/vsock/driver-ready.ts'
import { AGENT_PORT, type GuestLink } from '../../../src/host/qemu/vsock/guest-link.ts'
import { ensureContainerRoot } from '../../../src/image/container-root.ts'
import type { TtrpcClient } from '../../../src/rpc/ttrpc/client.ts'
import { endChild } from '../processes.ts'
import { progress } from '../vm/boot-guest.ts'
import { plugVsock, unplugVsock } from '../vm/hot-plug/hot-vsock.ts'
import { goOnFrom, limit, run, savableWords, saveState } from '../vm/saved/saving.ts'

/** `stop`: QEMU stops the guest, whose vsock was unplugged. `restore`: the guest is saved, and goes on in another QEMU. */
export type Way = 'stop' | 'restore'

const PORT = 'plug'
/** A guest that stops and goes on. Its busybox disk is at `05`. */
export class FreezingMachine {
  readonly #folder = makeTemporaryFolder(tmpdir())
  readonly #way: Way
  readonly #byVsock: boolean
  #link: GuestLink | undefined
  #qemu: ChildProcess | undefined
  #qmp: QmpClient | undefined
  #daemon: ChildProcess | undefined
  #plugs = 0
  readonly #servers: Server[] = []

  /** By default the agent of a guest that is saved is reached over QEMU's user network. */
  constructor(way: Way, { byVsock = way === 'stop' }: { readonly byVsock?: boolean } = {}) {
    this.#way = way
    this.#byVsock = byVsock
  }

  /** Where the host listens for a port of the guest, with `_PORT` appended. */
  get socketPath(): string {
    return this.#path('vsock.sock')
  }

  async consoleText(): Promise<string> {
    const file = this.#path('console')
    return existsSync(file) ? readFileSync(file, 'utf8') : ''
  }

  async boot(words: readonly string[]): Promise<void> {
    copyFileSync(await ensureContainerRoot(progress), this.#path('busybox'))
    const link = await chooseLink({ override: 'tcp', progress })
    this.#link = this.#byVsock ? { ...link, commandLine: [] } : link
    await this.#start(words, false)
    if (this.#byVsock) await this.plug()
  }

  get address(): Address {
    if (this.#byVsock) return { kind: 'hvsock', path: this.socketPath, port: AGENT_PORT }
    const { backend } = this.#link ?? {}
    const [forward] = backend?.kind === 'user-network' ? (backend.forwards ?? []) : []
    return { kind: 'tcp', host: '127.0.0.1', port: forward?.hostPort ?? 0 }
  }

  /** Connects to the agent, and waits until it answers. */
  connect(): Promise<TtrpcClient> {
    const address = this.address
    return connectAgent({ connect: (signal) => dial(address, signal) }, limit())
  }

  /** Stops the guest for some time. Resolves when it runs again, and can be connected to. */
  async freeze(words: readonly string[], ms: number): Promise<void> {
    if (this.#byVsock) await this.unplug()
    if (this.#way === 'stop') {
      await run(this.#monitor(), 'stop')
      await delay(ms)
      await run(this.#monitor(), 'cont')
    } else {
      await saveState(this.#monitor(), this.#path('state'))
      await this.#endQemu()
      await delay(ms)
      await this.#start(words, true)
      await goOnFrom(this.#monitor(), this.#path('state'))
    }
    if (this.#byVsock) await this.plug()
  }

  /** Resolves when the host can connect to the guest. */
  async plug(): Promise<void> {
    this.#plugs += 1
    const place = {
      ...{ id: `vsock${this.#plugs}`, bus: PORT, cid: 3 },
      ...{ socket: this.#path('vhost.sock'), path: this.socketPath },
    }
    this.#daemon = await plugVsock(this.#monitor(), place, limit())
    const device = { qmp: this.#monitor(), id: place.id, ending: limit() }
    await vsockStarts(device)
  }

  async unplug(): Promise<void> {
    await unplugVsock(this.#monitor(), `vsock${this.#plugs}`, limit())
    if (this.#daemon !== undefined) await endChild(this.#daemon)
    this.#daemon = undefined
  }

  /** The guest cannot notice it. */
  async killDaemon(): Promise<void> {
    if (this.#daemon !== undefined) await endChild(this.#daemon, 'SIGKILL')
  }

  /** Gives each connection of the guest to a port; in a guest without vsock none comes. */
  async listen(port: number, onConnection: (socket: Socket) => void): Promise<void> {
    const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (socket) =>
      onConnection(socket.on('error', () => {})),
    )
    this.#servers.push(server)
    await once(server.listen(`${this.socketPath}_${port}`), 'listening')
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

  async #start(append: readonly string[], isRestored: boolean): Promise<void> {
    if (this.#link === undefined) throw new Error('not booted')
    const socket = this.#path('qmp.sock')
    rmSync(socket, { force: true })
    const machine = await savableWords({
      ...{ link: this.#link, append, socket, isRestored },
      ...{ memory: this.#path('memory'), disk: this.#path('busybox') },
    })
    const words = [...machine, '-device', `pcie-root-port,id=${PORT},chassis=7,addr=0x7`]
    const output = openSync(this.#path('console'), 'a')
    this.#qemu = spawn('qemu-system-x86_64', words, { stdio: ['ignore', output, output] })
    closeSync(output)
    this.#qmp = await connectQmp(socket, limit())
  }

  async #endQemu(): Promise<void> {
    this.#qmp?.close()
    if (this.#qemu !== undefined) await endChild(this.#qemu)
  }

  #monitor(): QmpClient {
    if (this.#qmp === undefined) throw new Error('no monitor')
    return this.#qmp
  }
}
