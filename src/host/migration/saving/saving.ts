import type { Ring } from '../../instance/holder/holder.ts'
import type { MachineInstance } from '../../instance/instance.ts'
import type { MemoryForm } from '../machine-state.ts'
import type { HostFacts, OutsideFile } from '../manifest.ts'
import type { FileFacts } from '../memory-file.ts'
import type { GuestFacts } from '../payloads/ask-guest.ts'
import { workOf } from '../saved-folder.ts'
import type { MachineKnown } from '../state-file.ts'

/** A machine that is being saved. */
export interface Saving {
  readonly instance: MachineInstance
  /** The step that is written down meanwhile: `memory` where the machine goes on afterwards, `move` where it does so elsewhere. */
  readonly step: 'suspend' | 'memory' | 'move'
  readonly request: { readonly name: string; readonly quiesce: boolean }
  readonly folder: string
  /** Where it is made, before it gets its name. */
  readonly work: string
  readonly id: string
  readonly host: HostFacts
  readonly wasRunning: boolean
  readonly hasAgent: boolean
  /** Key of the vsock device whose daemon reads the guest's memory. */
  readonly vsock: string | undefined
  readonly files: Map<string, FileFacts>
  /** As QEMU has left them. */
  disks: readonly OutsideFile[]
  /** What its agent has told; undefined without one. */
  guest: GuestFacts | undefined
  /** What this host knew of it while it stood still. */
  known: MachineKnown
  rings: readonly Ring[]
  memoryForm: MemoryForm
  unplugged: string
  stoppedAt: number
}

export function newSaving(
  instance: MachineInstance,
  facts: Pick<Saving, 'folder' | 'hasAgent' | 'host' | 'id' | 'request' | 'step' | 'vsock' | 'wasRunning'>,
): Saving {
  const { record, steps } = instance.recorded
  return {
    ...{ ...facts, instance, work: workOf(facts.folder, facts.id) },
    ...{ files: new Map(), disks: [], guest: undefined, rings: [] },
    known: { record, steps, streams: [] },
    ...{ memoryForm: 'stream', unplugged: '', stoppedAt: 0 },
  }
}
