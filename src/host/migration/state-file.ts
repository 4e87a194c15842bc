import { readFile, writeFile } from 'node:fs/promises'
import { InstanceRecord } from '../../gen/microvm/instance/v1/records.ts'
import type { Ring } from '../instance/holder/holder.ts'
import type { MachineInstance } from '../instance/instance.ts'
import type { HostFacts } from './manifest.ts'
import type { GuestFacts } from './payloads/ask-guest.ts'
import { restoreInstance, saveInstance } from './payloads/saved-instance.ts'

/** Writes to a new file what this host's side knows of a machine that stands still. `guest` is undefined without an agent. */
export async function writeState(
  path: string,
  { recorded, streams }: MachineInstance,
  facts: {
    readonly guest: GuestFacts | undefined
    readonly rings: readonly Ring[]
    readonly host: HostFacts
    readonly createdMs: number
  },
): Promise<void> {
  const { record, steps } = recorded
  const { guest, rings, host, createdMs } = facts
  const bytes = saveInstance({
    record: {
      ...{ ...record, resets: [], reason: '' },
      ...(record.document && { document: { ...record.document, saved: record.document.current } }),
    },
    ...{ steps, guest, savedMs: BigInt(createdMs) },
    streams: [...streams.values()].map(({ instance: _, ...stream }) => stream),
    rings: rings.map(({ isClosed, ...ring }) => ({ ...ring, closed: isClosed })),
    compatibility: { qemuVersion: host.qemu.replace(/^QEMU /, ''), kvm: host.acceleration === 'kvm' },
  })
  await writeFile(path, bytes, { flag: 'wx', mode: 0o600, flush: true })
}

/** What the record of the machine's next instance begins with. Throws FAILED_PRECONDITION for what this host does not read. */
export async function readState(path: string): Promise<InstanceRecord> {
  return { ...InstanceRecord.create(), ...restoreInstance(await readFile(path), path).record }
}
