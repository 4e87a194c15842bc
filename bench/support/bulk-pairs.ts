import { closeSync, mkdirSync, openSync, readdirSync, readlinkSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { neverAborted } from '../../src/base/abort.ts'
import { buildHolder } from '../../src/build/native.ts'
import type { HolderClient } from '../../src/host/instance/holder/holder-client.ts'
import { startHolder } from '../../src/host/instance/holder/start-holder.ts'
import { type BulkTls, NAMES } from '../../src/host/migration/bulk/bulk.ts'
import {
  acceptOne,
  give,
  giveConnection,
  giveListener,
  loadAddon,
} from '../../src/host/migration/bulk/sockets.ts'
import { addTls } from '../../src/host/migration/bulk/tls.ts'
import { type BulkMachine, startBulkMachine } from '../../test/support/wing/moves/bulk-machines.ts'
import { signCertificates } from '../../test/support/wing/moves/sign-certificates.ts'

export interface MoveTimes {
  readonly wholeMs: number
  readonly stoppedMs: number
}

/** Of the machines that are moved. */
export const MEMORY_MIB = 512
export const DISK_MIB = 256
const USED_MIB = 384

/** Pairs of machines without a daemon. */
export class BulkPairs {
  readonly #folder: string
  readonly #native: Awaited<ReturnType<typeof loadAddon>>
  readonly #started: HolderClient[] = []
  readonly #holders: Parameters<typeof startBulkMachine>[0]
  #count = 0

  private constructor(folder: string, program: string, native: Awaited<ReturnType<typeof loadAddon>>) {
    this.#folder = folder
    this.#native = native
    this.#holders = {
      newFolder: () => {
        const own = join(folder, String(this.#count++))
        mkdirSync(own, { mode: 0o700 })
        return own
      },
      start: async (own = '') => {
        const holder = await startHolder(own, program)
        this.#started.push(holder)
        return holder
      },
    }
  }

  /** With certificates of two hosts a and b in the folder. */
  static async open(folder: string): Promise<BulkPairs> {
    signCertificates(folder, 'ca', ['a', 'b'])
    return new BulkPairs(folder, await buildHolder(), await loadAddon())
  }

  tlsOf(id: string, peer: string): BulkTls {
    const at = (name: string) => join(this.#folder, name)
    return { identity: { ca: at('ca.pem'), cert: at(`${id}.pem`), key: at(`${id}.key`) }, peer }
  }

  /** The machines of one round. The source's memory has content that QEMU has to send. */
  async pair(): Promise<readonly [BulkMachine, BulkMachine]> {
    const source = await startBulkMachine(this.#holders, PLAN)
    const target = await startBulkMachine(this.#holders, { ...PLAN, isIncoming: true })
    fillMemory(source.pid)
    return [source, target]
  }

  /** A move with no more than what QEMU's manual has for it. */
  async byHand(hasTls: boolean): Promise<MoveTimes> {
    const native = this.#native
    const [source, target] = await this.pair()
    const begun = performance.now()
    const at = { host: '127.0.0.1' }
    const tls = { 'tls-creds': NAMES.credentials }
    const [client, server] = hasTls ? [{ ...tls, 'tls-hostname': 'b' }, tls] : [{}, {}]
    if (hasTls) {
      await addTls(target, 'server', { ...this.tlsOf('b', 'a'), native })
      await addTls(source, 'client', { ...this.tlsOf('a', 'b'), native })
    }
    const disks = await giveListener(target, at, { fdname: 'disks', native })
    const addr = { type: 'fd', data: { str: 'disks' } } as const
    const [one, other] = [source.qmp, target.qmp]
    await other.execute('nbd-server-start', { addr, ...server, 'max-connections': 1 }, neverAborted)
    const { node } = target.disk
    const exported = { type: 'nbd', id: 'e', name: 'e', 'node-name': node, writable: true } as const
    await other.execute('block-export-add', exported, neverAborted)
    const wire = await giveConnection(source, disks, { fdname: 'disk', native })
    const remote = {
      driver: 'nbd',
      'node-name': 'r',
      server: { type: 'fd', str: 'disk' },
      export: 'e',
      ...client,
    }
    await one.execute('blockdev-add', remote, neverAborted)
    const mirror = { 'job-id': 'm', device: node, target: 'r', sync: 'full', 'auto-dismiss': true }
    await one.command({ execute: 'blockdev-mirror', arguments: mirror }, neverAborted)
    while ((await one.execute('query-block-jobs', {}, neverAborted))[0]?.status !== 'ready') await delay(10)
    const acceptor = await acceptOne(at, () => true)
    const memory = await giveConnection(source, acceptor.endpoint, { fdname: 'memory', native })
    await give(target, await acceptor.first, { fdname: 'memory', native })
    acceptor.close()
    const capabilities = ['events', 'pause-before-switchover'].map((capability) => ({
      capability,
      state: true,
    }))
    const limits = { 'max-bandwidth': 2 ** 40, 'downtime-limit': 100 }
    await other.execute('migrate-set-capabilities', { capabilities: capabilities.slice(0, 1) }, neverAborted)
    await other.execute('migrate-set-parameters', server, neverAborted)
    await one.execute('migrate-set-capabilities', { capabilities }, neverAborted)
    await one.execute('migrate-set-parameters', { ...limits, ...client }, neverAborted)
    const state = (qmp: typeof one, wanted: string) =>
      qmp.event(({ data }) => data.status === wanted, neverAborted)
    const [paused, sent, arrived] = [
      state(one, 'pre-switchover'),
      state(one, 'completed'),
      state(other, 'completed'),
    ]
    await other.execute('migrate-incoming', { uri: 'fd:memory' }, neverAborted)
    await one.execute('migrate', { uri: 'fd:memory' }, neverAborted)
    await paused
    await one.execute('block-job-cancel', { device: 'm' }, neverAborted)
    while ((await one.execute('query-block-jobs', {}, neverAborted)).length > 0) await delay(1)
    await one.execute('migrate-continue', { state: 'pre-switchover' }, neverAborted)
    await sent
    await arrived
    await other.execute('nbd-server-stop', {}, neverAborted)
    await other.execute('cont', {}, neverAborted)
    const wholeMs = performance.now() - begun
    for (const each of [wire, memory]) each.close()
    return { wholeMs, stoppedMs: await downtimeOf(source) }
  }

  /** Ends the machines. */
  async end(): Promise<void> {
    for (const holder of this.#started.splice(0)) await holder.end()
  }
}

const PLAN = { memoryMib: MEMORY_MIB, diskMib: DISK_MIB } as const

async function downtimeOf({ qmp }: BulkMachine): Promise<number> {
  return (await qmp.execute('query-migrate', {}, neverAborted)).downtime ?? 0
}

/** Writes to the memory of a QEMU what it has to send. */
export function fillMemory(pid: number): void {
  const fds = `/proc/${pid}/fd`
  const memory = readdirSync(fds).find((fd) =>
    readlinkSync(join(fds, fd)).startsWith('/memfd:memory-backend'),
  )
  const file = openSync(join(fds, memory ?? ''), 'r+')
  for (let mib = 64; mib < 64 + USED_MIB; mib++)
    writeSync(file, Buffer.alloc(2 ** 20, mib), 0, 2 ** 20, mib * 2 ** 20)
  closeSync(file)
}
