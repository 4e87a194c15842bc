import { mkdirSync, readdirSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { neverAborted } from '../../../../src/base/abort.ts'
import { AgentError } from '../../../../src/base/errors.ts'
import { silentLogger } from '../../../../src/base/log.ts'
import { buildAddon, buildHolder } from '../../../../src/build/native.ts'
import { Vm } from '../../../../src/gen/microvm/controller/v1/controller.ts'
import type { Holder } from '../../../../src/host/instance/holder/holder.ts'
import { findHolder, killHolder, startHolder } from '../../../../src/host/instance/holder/start-holder.ts'
import { type Reach, Volumes, type VolumesHost } from '../../../../src/host/instance/leases/volumes.ts'
import { INSTANCE_LIMITS } from '../../../../src/host/instance/limits.ts'
import { memoryRegistry } from '../../../../src/host/instance/registry/memory-registry.ts'
import { sleep, startTimer } from '../../../../src/os/clock.ts'
import { hypervisor } from '../../../support/wing/controller/vms.ts'
import { hostAuthority } from '../../../support/wing/moves/host-certificates.ts'

/** Host `a` with a volume of VM `web`, and its controller, which has `run` of `host` run the VM. */
export class TestVolumes {
  readonly folder: string
  readonly path: string
  readonly authority = hostAuthority('hosts', ['a', 'b', 'c'])
  host = 'a'
  run = 1n
  /** The controller knows it. */
  isThere = true
  folders: VolumesHost['folders']
  /** Of a writer of this host. */
  uid = 0
  /** Is called when a server has been started. */
  onStart = () => {}
  volumes: Volumes
  #registry = memoryRegistry()
  readonly #holder: string

  private constructor(folder: string, holder: string) {
    this.folder = folder
    this.#holder = holder
    this.path = join(folder, 'disks', 'root')
    this.folders = { [join(folder, 'disks')]: ['b'] }
    mkdirSync(join(folder, 'disks'))
    writeFileSync(this.path, '')
    truncateSync(this.path, 1 << 20)
    this.volumes = this.#opened()
  }

  static async open(folder: string): Promise<TestVolumes> {
    const [holder] = await Promise.all([buildHolder(), buildAddon()])
    const volumes = new TestVolumes(folder, holder)
    await volumes.volumes.open()
    return volumes
  }

  /** As another daemon does. */
  async openAgain(): Promise<void> {
    this.volumes.close()
    this.volumes = this.#opened()
    await this.volumes.open()
  }

  /** The same with an empty registry. */
  async openAnew(): Promise<void> {
    this.#registry = memoryRegistry()
    await this.openAgain()
  }

  /** Resolves with the arguments of the NBD client of the present run, without its credentials. */
  async fence(run = this.run): Promise<Record<string, unknown> & { readonly reach: Reach }> {
    const { host } = this
    const us = hypervisor(host, run)
    const socket = this.socket(run)
    const reach = await this.volumes.fence(
      us,
      'root',
      host === 'a' ? { socket, uid: this.uid } : { peer: host },
      neverAborted,
    )
    const { address, name, port } = reach
    const server =
      host === 'a' ? { type: 'unix', path: socket } : { type: 'inet', host: address, port: `${port}` }
    return { reach, driver: 'nbd', server, export: name }
  }

  /** Of the writer of a run on this host. */
  socket(run = this.run): string {
    return join(this.folder, `run${run}.sock`)
  }

  /** Makes the folder in which QEMU finds what a client of this name shows. */
  credentials(name: string): string {
    const folder = join(this.folder, `tls-${name}`)
    const { ca, folder: from } = this.authority
    mkdirSync(folder)
    symlinkSync(ca, join(folder, 'ca-cert.pem'))
    symlinkSync(join(from, `${name}.pem`), join(folder, 'client-cert.pem'))
    symlinkSync(join(from, `${name}.key`), join(folder, 'client-key.pem'))
    return folder
  }

  /** Of the holders of servers. */
  holders(): readonly string[] {
    const folder = join(this.folder, 'volumes')
    return readdirSync(folder).map((name) => join(folder, name))
  }

  async killServer(): Promise<void> {
    for (const folder of this.holders()) {
      const holder = await findHolder(folder)
      await holder?.kill('volume', 9)
      holder?.disconnect()
    }
  }

  async close(): Promise<void> {
    this.volumes.close()
    for (const folder of this.holders()) await killHolder(folder)
  }

  async #start(folder: string): Promise<Holder> {
    const holder = await startHolder(folder, this.#holder)
    const start: Holder['start'] = async (plan) => {
      const process = await holder.start(plan)
      this.onStart()
      return process
    }
    return new Proxy(holder, {
      get: (_, name) => {
        const value = name === 'start' ? start : Reflect.get(holder, name, holder)
        return typeof value === 'function' ? value.bind(holder) : value
      },
    })
  }

  #opened(): Volumes {
    const files = { ca: this.authority.ca, cert: join(this.authority.folder, 'a.pem') }
    return new Volumes({
      ...{
        id: 'a',
        address: 'localhost',
        listen: '127.0.0.1',
        folders: this.folders,
        stateFolder: this.folder,
      },
      identity: { ...files, key: join(this.authority.folder, 'a.key') },
      getVm: async ({ namespace, name }) => {
        if (!this.isThere) throw new AgentError('NOT_FOUND', 'vm: not there')
        const volumes = [{ key: 'root', host: 'a', path: this.path, epoch: this.run }]
        return Vm.fromPartial({ namespace, name, authoritative: hypervisor(this.host, this.run), volumes })
      },
      ...{ program: 'qemu-storage-daemon', registry: this.#registry, limits: INSTANCE_LIMITS },
      holders: { start: (of) => this.#start(of), find: findHolder, kill: killHolder },
      clock: { sleep, startTimer },
      log: silentLogger(),
    })
  }
}
