import { AgentError } from '../../../base/errors.ts'
import type { InstanceRecord } from '../../../gen/microvm/instance/v1/records.ts'
import type { MachineInstance } from '../instance.ts'
import type { CpuShares } from '../machine/cpu-shares.ts'
import { machinesOf } from './document-record.ts'

/** Gives each CPU of this host to one instance at most. The records have them; between choice and record they are here. */
export class CpuChoices {
  readonly #shares: CpuShares | undefined
  readonly #instances: ReadonlyMap<string, MachineInstance>
  readonly #unrecorded = new Map<MachineInstance, readonly number[]>()

  constructor(shares: CpuShares | undefined, instances: ReadonlyMap<string, MachineInstance>) {
    this.#shares = shares
    this.#instances = instances
  }

  /** CPUs for a start of the machine in `document`, if it wishes for exclusive ones. */
  async choose(starting: MachineInstance, document: InstanceRecord['document']): Promise<number[]> {
    const machine = machinesOf({ document })?.current
    if (machine?.cpu.exclusive === undefined) return []
    if (this.#shares === undefined) throw new AgentError('UNIMPLEMENTED', 'cpu.exclusive: not possible here')
    const choose = await this.#shares.chooser(machine, starting.record.properties?.tenant)
    // Nothing may be waited for between here and the end.
    const others = [...this.#instances.values()].filter((each) => each !== starting)
    const taken = others.flatMap((each) => [...each.record.pinnedCpus, ...(this.#unrecorded.get(each) ?? [])])
    const chosen = choose(new Set(taken))
    this.#unrecorded.set(starting, chosen)
    return [...chosen]
  }

  /** To be called once a choice is in the record, or is not needed. */
  recorded(instance: MachineInstance): void {
    this.#unrecorded.delete(instance)
  }
}
