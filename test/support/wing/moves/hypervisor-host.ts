import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import {
  type DeepPartial,
  Instance,
  type Specification,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { LeaseMode, type VMSpec, VMSpec_StartMode } from '../../../../src/gen/vm.ts'
import { type Endpoint, endpointText } from '../../../../src/host/tls/endpoint.ts'
import { instanceJson } from '../../../../src/microvm/machines/command.ts'
import { CountingMachines } from '../counting-machine.ts'
import { type HypervisorProcess, startHypervisor } from '../hypervisor-process.ts'
import { hostOf } from './host-certificates.ts'
import type { Authority } from './sign-certificates.ts'

/** A host that is a process of `./microvm hypervisor`, whose guest counts. */
export class HypervisorHost {
  readonly id: string
  readonly settings: ReturnType<typeof hostOf>
  readonly state: string
  /** Reads what its machine tells. */
  readonly machines: CountingMachines
  readonly #folder: string
  readonly #controller: Endpoint
  readonly #started: HypervisorProcess[] = []

  /** `folder` has the disks, which all hosts reach. */
  constructor(
    folder: string,
    id: string,
    { authority, controller }: { readonly authority: Authority; readonly controller: Endpoint },
  ) {
    this.id = id
    this.settings = hostOf(authority, id)
    this.state = join(folder, id)
    this.machines = new CountingMachines(this.state, join(folder, 'images'))
    this.#folder = folder
    this.#controller = controller
    mkdirSync(this.state, { recursive: true, mode: 0o700 })
    const { ca, cert, key, listen } = this.settings
    const fields = { id, listen: endpointText(listen), ca, cert, key }
    const lines = Object.entries(fields).map(([name, value]) => `${name} = ${JSON.stringify(value)}`)
    writeFileSync(join(folder, `${id}.toml`), `[host]\n${lines.join('\n')}\n`)
  }

  get socket(): string {
    return join(this.state, 'hypervisor.sock')
  }

  start(
    spec: Partial<VMSpec> = {},
    words: readonly string[] = [],
    change: DeepPartial<Specification> = {},
  ): HypervisorProcess {
    const machine = join(this.#folder, `${this.id}.json`)
    const { specification } = this.machines.request('web', change)
    writeFileSync(
      machine,
      JSON.stringify(instanceJson(Instance.fromPartial({ ...(specification && { specification }) }))),
    )
    const all = [
      '--machine',
      machine,
      '--state',
      this.state,
      '--config',
      join(this.#folder, `${this.id}.toml`),
      ...words,
    ]
    const run = { name: 'web', mode: VMSpec_StartMode.SM_RUN, leaseMode: LeaseMode.LM_STORAGE_LOCKING }
    const controllerEndpoint = endpointText(this.#controller)
    const hypervisor = startHypervisor({ ...run, controllerEndpoint, ...spec }, { words: all })
    this.#started.push(hypervisor)
    return hypervisor
  }

  /** Starts it, and resolves once it serves as the target of a move. */
  async await(
    spec: Partial<VMSpec> = {},
    words: readonly string[] = [],
    change: DeepPartial<Specification> = {},
  ): Promise<HypervisorProcess> {
    const hypervisor = this.start({ mode: VMSpec_StartMode.SM_INCOMING_MIGRATION, ...spec }, words, change)
    await hypervisor.until('"msg":"serving"')
    return hypervisor
  }

  /** Starts it, and resolves once its guest counts. */
  async run(
    spec: Partial<VMSpec> = {},
    words: readonly string[] = [],
    change: DeepPartial<Specification> = {},
  ): Promise<HypervisorProcess> {
    const hypervisor = this.start(spec, words, change)
    await hypervisor.until('the machine runs')
    await this.machines.counted('web', 1)
    return hypervisor
  }

  /** Kills what has not ended. */
  async end(): Promise<void> {
    for (const { ended, process } of this.#started) {
      process.kill('SIGKILL')
      await ended
    }
  }
}
