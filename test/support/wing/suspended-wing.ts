import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { silentLogger } from '../../../src/base/log.ts'
import {
  ChangeStateRequest_Change as Change,
  type DeepPartial,
  type Specification,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import type { Instances } from '../../../src/host/instance/instances.ts'
import { DEFAULT_QUOTA, type Quota } from '../../../src/host/instance/record/quota.ts'
import type { Registry, Change as RowChange } from '../../../src/host/instance/registry/registry.ts'
import type { AtStep } from '../../../src/host/migration/faults.ts'
import { openMigration } from '../../../src/host/migration/migration.ts'
import type { Spans } from '../../../src/host/migration/move-figures.ts'
import { instanceFolderName, specKey } from '../../../src/host/spec/spec-key.ts'
import { ADMIN, ensureRequest, file, specification } from './requests.ts'
import { FakeWing } from './wing.ts'

/** A machine with vsock, of a daemon that may die: then nothing that it writes reaches the registry any more. */
export class SuspendedWing extends FakeWing {
  isDead = false
  quota: Partial<Quota> = {}
  atStep: AtStep = async () => {}
  spans: Spans | undefined

  async daemon(dies: (changes: readonly RowChange[]) => boolean = () => false): Promise<Instances> {
    this.isDead = false
    const registry: Registry = {
      load: (table) => this.registry.load(table),
      close: () => this.registry.close(),
      commit: async (changes, how) => {
        if (this.isDead) return await new Promise(() => {})
        await this.registry.commit(changes, how)
        if (!dies(changes)) return
        this.isDead = true
        await new Promise(() => {})
      },
    }
    const host = { stateFolder: this.folder, acceleration: 'tcg', qemuVersion: async () => '7.2.0' }
    const parts = { ...host, holders: this.holders, log: silentLogger(), spans: this.spans }
    const moves = openMigration(parts, (operation, step) => this.atStep(operation, step))
    const quotas = new Map([['anne', { ...DEFAULT_QUOTA, ...this.quota }]])
    return await this.open(registry, { moves, quotas })
  }

  async make(
    instances: Instances,
    more: DeepPartial<Specification> & { readonly tenant?: string } = {},
  ): Promise<void> {
    this.holders.prepare = ({ devices }) => devices.add('name-vsock')
    const { devices, backends } = specification()
    const { tenant = '', ...change } = more
    const whole = {
      board: change.board,
      devices: { ...devices, ...change.devices, vsock: { backend: 'socket', port: 'port', vsock: {} } },
      backends: { ...backends, ...change.backends, socket: { vsockDaemon: {} } },
    }
    await instances.ensure(ensureRequest('web', { tenant, specification: whole }), ADMIN)
    await instances.changeState({ key: 'web', change: Change.RUN, graceMs: 0 }, ADMIN)
  }

  /** Makes the machine that {@link folderOf} has, with a tap, and files that can be saved. */
  async makeWithTap(instances: Instances): Promise<void> {
    const disk = join(this.folder, 'disk-1M')
    writeFileSync(disk, Buffer.alloc(2 ** 20))
    await this.make(instances, {
      board: { kernel: '' },
      devices: { lan: { backend: 'lan-tap', slot: 8, nic: { mac: '52:54:00:00:00:08' } } },
      backends: { 'root-file': file(disk), 'lan-tap': { tap: { interfaceName: 'lan0' } } },
    })
    writeFileSync(join(this.folderOf('web'), 'console.ring'), '')
  }

  folderOf(key: string): string {
    return join(this.folder, 'instances', instanceFolderName(specKey(key)))
  }

  async unfinished(): Promise<readonly string[]> {
    return (await this.rows()).filter((key) => /\/(plug|replug|suspend|memory|snapshot|layer)\//.test(key))
  }
}
