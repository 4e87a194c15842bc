import { type ChildProcess, fork } from 'node:child_process'
import { mkdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { buildHolder } from '../../../../src/build/native.ts'
import { RunLeaseUpdate, RunLeaseUpdate_Status as Status } from '../../../../src/gen/vm.ts'
import type { HolderClient } from '../../../../src/host/instance/holder/holder-client.ts'
import { startHolder } from '../../../../src/host/instance/holder/start-holder.ts'
import { endOfGrant } from '../../../../src/host/instance/leases/lease-keeper.ts'
import { makeNetworkNamespace, type NetworkNamespace } from '../../../support/host/network-namespace.ts'
import { realNative } from '../../../support/os/real-native.ts'
import { endChild, processState } from '../../../support/processes.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { type FrameWatcher, watchFrames, withBridge } from './frame-sender.ts'
import { TestVolumes } from './test-volumes.ts'

const TTL_MS = 3000
const MS = 1_000_000n
/** What a controller waits beyond the time of its last grant (src/host/controller/leases.ts). */
const DRIFT_MS = TTL_MS / 10 + 2000
const { boottimeNs } = await realNative()

/** How much later than the end of the lease something may be seen from here: before another host may have the machine. */
const LATE_MS = 2000

async function until(isSo: () => boolean): Promise<void> {
  const late = AbortSignal.timeout(20_000)
  while (!isSo()) {
    if (late.aborted) throw new Error(`not so: ${isSo}`)
    await sleep(20)
  }
}

type How = 'grants' | 'says nothing' | 'ends it'

/** A machine with its holder, its daemon, its tap and its controller. */
class Place {
  readonly daemon: ChildProcess
  readonly holder: HolderClient
  readonly seen: FrameWatcher
  pid = 0
  controller: How = 'grants'
  /** Of the request of the last grant. */
  sentNs = 0n
  /** The answers take so much longer. */
  delayMs = 0
  readonly #namespace: NetworkNamespace

  private constructor(
    namespace: NetworkNamespace,
    { daemon, holder, seen }: Pick<Place, 'daemon' | 'holder' | 'seen'>,
  ) {
    this.#namespace = namespace
    this.daemon = daemon
    this.holder = holder
    this.seen = seen
  }

  static async make(folder: string, writer = ''): Promise<Place> {
    mkdirSync(folder, { mode: 0o700, recursive: true })
    const namespace = await makeNetworkNamespace()
    withBridge(namespace)
    const holder = await startHolder(folder, await buildHolder())
    const seen = await watchFrames(namespace, 'seen0', boottimeNs)
    const program = join(import.meta.dirname, 'lease-daemon.ts')
    const daemon = fork(program, [folder, namespace.path, 'tap0', writer])
    const place = new Place(namespace, { daemon, holder, seen })
    daemon.on('message', (message) => void place.#receive(message))
    return place
  }

  get untilNs(): bigint {
    return endOfGrant(this.sentNs, BigInt(TTL_MS))
  }

  async ready(): Promise<this> {
    await until(() => this.pid > 0)
    const before = this.seen.frames()
    await until(() => this.seen.frames() > before + 10)
    return this
  }

  /** When the machine's process was seen to have ended. */
  async died(untilNs: bigint): Promise<bigint | undefined> {
    while (!['Z', undefined].includes(processState(this.pid)?.state)) {
      if (boottimeNs() > untilNs) return undefined
      await sleep(20)
    }
    return boottimeNs()
  }

  async close(): Promise<void> {
    await endChild(this.daemon, 'SIGKILL')
    if (this.holder.pid !== undefined && processState(this.holder.pid) !== undefined)
      process.kill(this.holder.pid, 'SIGKILL')
    await this.holder.ended
    await this.seen.close()
    await this.#namespace.close()
  }

  async #receive(message: unknown): Promise<void> {
    const { nonce, ready } = message as { readonly nonce?: string; readonly ready?: number }
    if (ready !== undefined) this.pid = ready
    if (nonce === undefined || this.controller === 'says nothing') return
    const isGranted = this.controller === 'grants'
    const bytes = Buffer.from(nonce, 'hex')
    if (isGranted) this.sentNs = bytes.readBigUInt64BE()
    const status = isGranted ? Status.STATUS_OK : Status.STATUS_TERMINATE
    const update = RunLeaseUpdate.fromPartial({ status, epoch: 1n, ttlMs: BigInt(TTL_MS), nonce: bytes })
    const encoded = RunLeaseUpdate.encode(update).finish()
    await sleep(this.delayMs)
    if (this.daemon.connected) this.daemon.send({ nonce, update: Buffer.from(encoded).toString('hex') })
  }
}

const SIGNALS = {
  stopDaemon: ({ daemon }: Place) => daemon.kill('SIGSTOP'),
  killDaemon: ({ daemon }: Place) => daemon.kill('SIGKILL'),
  stopHolder: ({ holder }: Place) => process.kill(holder.pid, 'SIGSTOP'),
  killHolder: ({ holder }: Place) => process.kill(holder.pid, 'SIGKILL'),
  cutOff: (place: Place) => {
    place.controller = 'says nothing'
  },
  slowDown: (place: Place) => {
    place.delayMs = 2 * TTL_MS
  },
  replace: (place: Place) => {
    place.controller = 'ends it'
  },
} as const

type Row = readonly [string, readonly (keyof typeof SIGNALS)[], 'at once' | 'with the lease']

async function endsByProcess(_: string, actions: Row[1], when: Row[2]): Promise<void> {
  const place = await Place.make(temporaryFolder())
  try {
    await place.ready()
    const actedNs = boottimeNs()
    for (const action of actions) SIGNALS[action](place)
    // A grant may have been on its way.
    const endedNs = await place.died(actedNs + BigInt(TTL_MS + DRIFT_MS) * MS)
    const { untilNs } = place
    if (endedNs === undefined) return expect.fail('the machine runs on')
    if (when === 'at once') expect(Number((endedNs - actedNs) / MS)).toBeLessThan(TTL_MS)
    else {
      // The last grant has not moved the end.
      const isLost =
        actions.includes('slowDown') || (actions.includes('stopHolder') && !actions.includes('cutOff'))
      expect(endedNs).toBeGreaterThanOrEqual(isLost ? actedNs : untilNs)
      expect(Number((endedNs - untilNs) / MS)).toBeLessThan(LATE_MS)
    }
    // Before another could be granted it.
    expect(endedNs).toBeLessThan(place.sentNs + BigInt(TTL_MS + DRIFT_MS) * MS)
    expect(place.seen.lastNs()).toBeLessThan(untilNs + BigInt(LATE_MS) * MS)
  } finally {
    await place.close()
  }
}

describe('the end of a machine with LM_FULL_LEASES', () => {
  it.each<Row>([
    ['SIGSTOP of the daemon', ['stopDaemon'], 'with the lease'],
    ['SIGKILL of the daemon', ['killDaemon'], 'with the lease'],
    ['SIGSTOP of the holder', ['stopHolder'], 'with the lease'],
    ['SIGKILL of the holder', ['killHolder'], 'at once'],
    ['SIGKILL of both', ['killHolder', 'killDaemon'], 'at once'],
    ['a partition from the controllers', ['cutOff'], 'with the lease'],
    ['a partition, and SIGSTOP of the holder', ['cutOff', 'stopHolder'], 'with the lease'],
    ['answers that take twice the time of a grant', ['slowDown'], 'with the lease'],
    ['another that runs the machine', ['replace'], 'at once'],
  ])('comes by its process with %s', endsByProcess)

  it('comes by the network and the storage with SIGSTOP of holder and daemon', async () => {
    const folder = temporaryFolder()
    const storage = await TestVolumes.open(folder)
    await storage.fence()
    const url = `nbd+unix:///disk?socket=${join(folder, 'run1.sock')}`
    const writes = 'while sleep 0.05; do echo write 0 4096; done'
    const place = await Place.make(join(folder, 'instance'), `${writes} | qemu-io -f raw -t none '${url}'`)
    const writtenMs = () => statSync(storage.path).mtimeMs
    const writesOn = async () => {
      const before = writtenMs()
      await until(() => writtenMs() > before)
    }
    try {
      await place.ready()
      await writesOn()
      SIGNALS.stopHolder(place)
      SIGNALS.stopDaemon(place)
      const stoppedNs = boottimeNs()
      await sleep(TTL_MS + LATE_MS)
      // Neither its process nor its storage has ended, but nothing comes from its tap.
      expect(processState(place.pid)?.state).toMatch(/[RS]/)
      const { untilNs } = place
      expect(place.seen.lastNs()).toBeGreaterThan(stoppedNs)
      expect(Number((place.seen.lastNs() - untilNs) / MS)).toBeLessThan(100)
      await writesOn()
      storage.run = 2n
      await storage.fence()
      const fencedMs = writtenMs()
      await sleep(300)
      expect(writtenMs()).toBe(fencedMs)
      process.kill(place.holder.pid, 'SIGCONT')
      expect(await place.died(boottimeNs() + BigInt(LATE_MS) * MS)).toBeDefined()
    } finally {
      await place.close()
      await storage.close()
    }
  })
})
