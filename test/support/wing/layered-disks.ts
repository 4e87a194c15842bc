import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { neverAborted } from '../../../src/base/abort.ts'
import {
  ChangeStateRequest_Change as Change,
  ChangeStateRequest,
  Device,
  type Instance,
  type Layer,
  SnapshotRequest,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../../src/host/instance/instances.ts'
import { memoryRegistry } from '../../../src/host/instance/registry/memory-registry.ts'
import type { Registry } from '../../../src/host/instance/registry/registry.ts'
import type { QmpClient } from '../../../src/host/qemu/qmp/client.ts'
import { connectQmp } from '../../../src/host/qemu/qmp/connect.ts'
import { temporaryFolder } from '../temporary-folder.ts'
import { BLOCK, bytesOf, io } from './layer-bytes.ts'
import { leftovers } from './leftovers.ts'
import { image, lifePlan, openReal } from './real-wing.ts'
import { ADMIN, file } from './requests.ts'

/** An instance `web` with the disks `root` and `data`, whose blocks a test writes through QEMU in place of a guest. */
export class LayeredDisks {
  readonly folder: string
  readonly disks: string
  #registry: Registry = memoryRegistry()
  #instances: Instances | undefined

  constructor(folder = temporaryFolder(), disks = join(folder, 'images')) {
    this.folder = folder
    this.disks = disks
  }

  async make(registry = this.#registry): Promise<Instance> {
    this.#registry = registry
    const { request } = lifePlan(this.disks)
    const { specification } = request
    if (specification === undefined) throw new Error('no specification')
    specification.devices.data = Device.fromPartial({
      backend: 'data-file',
      slot: 6,
      disk: { serial: 'data' },
    })
    specification.backends['data-file'] = file(image(this.disks, 'data', 16))
    return (await this.open()).ensure(request, ADMIN)
  }

  async open(registry = this.#registry): Promise<Instances> {
    this.#registry = registry
    this.#instances ??= await openReal(this.folder, registry)
    return this.#instances
  }

  /** Lets go of the machine, as a daemon that dies. */
  async leave(): Promise<void> {
    await this.#instances?.close()
    this.#instances = undefined
  }

  async change(change: Change): Promise<Instance> {
    const request = ChangeStateRequest.fromPartial({ key: 'web', change })
    return (await this.open()).changeState(request, ADMIN)
  }

  stop(): Promise<Instance> {
    return this.change(Change.KILL)
  }

  async snapshot(name: string, ...disks: string[]) {
    return (await this.open()).snapshot(SnapshotRequest.fromPartial({ key: 'web', name, disks }), ADMIN)
  }

  async revert(name: string): Promise<Instance> {
    return (await this.open()).revert({ key: 'web', name }, async () => {}, ADMIN)
  }

  async rm(name: string) {
    return (await this.open()).removeSnapshot({ key: 'web', name, all: name === '' }, ADMIN)
  }

  async layers(): Promise<readonly Layer[]> {
    return (await (await this.open()).snapshots('web', ADMIN)).layers
  }

  /** QEMU has one client at a time, so the daemon lets go of it meanwhile. */
  async withQmp<T>(use: (qmp: QmpClient) => Promise<T>): Promise<T> {
    await this.leave()
    const qmp = await connectQmp(join(this.own, 'qmp.sock'), neverAborted)
    try {
      return await use(qmp)
    } finally {
      qmp.close()
      await this.open()
    }
  }

  /** Fills a block of a disk with a byte, as its guest would. */
  async write(disk: string, ...blocks: readonly (readonly [block: number, byte: number])[]): Promise<void> {
    await this.withQmp(async (qmp) => {
      for (const [block, byte] of blocks) await io(qmp, disk, `write -P ${byte} ${block * BLOCK} ${BLOCK}`)
      await io(qmp, disk, 'flush')
    })
  }

  /** The first byte of each of the first blocks of a disk, as the record says that the disk is put together. */
  async bytes(disk: string, count = 4): Promise<readonly number[]> {
    const layers = await this.layers()
    const base = join(this.disks, disk)
    const active = layers.find((layer) => layer.active && layer.base === base)
    return this.bytesOf(disk, active?.id ?? 0, layers, count)
  }

  bytesOf(disk: string, layer: number, layers: readonly Layer[], count = 4): readonly number[] {
    return bytesOf(this.own, this.disks, disk, layer, layers, count)
  }

  /** The instance's folder. */
  get own(): string {
    const [name = ''] = readdirSync(join(this.folder, 'instances'))
    return join(this.folder, 'instances', name)
  }

  get files(): readonly string[] {
    return readdirSync(join(this.own, 'disks')).toSorted()
  }

  async remove(): Promise<readonly string[]> {
    await (await this.open()).remove('web', ADMIN)
    await this.leave()
    return leftovers(this.folder)
  }
}
