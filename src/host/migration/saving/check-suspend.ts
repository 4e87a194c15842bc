import { AgentError } from '../../../base/errors.ts'
import { type Backend, type Device, File_Access } from '../../../gen/microvm/instance/v1/instance.ts'
import { specificationOf } from '../../instance/devices/plug.ts'
import { canBeUnplugged } from '../../instance/documents/document-record.ts'
import type { MachineInstance } from '../../instance/instance.ts'
import { refuseUndecided } from '../../instance/moving/undecided.ts'
import { pathOf } from '../../spec/component-path.ts'
import type { OutsideFile } from '../manifest.ts'
import { outsideFacts, withSample } from '../saved-folder.ts'

/** Throws naming what cannot be saved. Returns the key of the device that is unplugged for it. */
export async function checkSuspend(
  instance: MachineInstance,
  { wasRunning, hasAgent }: { readonly wasRunning: boolean; readonly hasAgent: boolean },
): Promise<string | undefined> {
  const { record, recorded, key } = instance
  const fail = (text: string) => new AgentError('FAILED_PRECONDITION', text)
  refuseUndecided(instance)
  const { board, backends, devices } = specificationOf(instance)
  const [leaving] = record.leaving
  if (leaving !== undefined) throw fail(`${pathOf('devices', leaving)}: leaving the machine`)
  const busy = recorded.steps.find(({ step }) => UNFINISHED.includes(step))
  if (busy !== undefined) throw fail(`instance ${key}: step ${busy.step} has not ended`)
  let vsock: string | undefined
  for (const [name, device] of Object.entries(devices)) {
    const refusal = refusalOf(device, backends[device.backend])
    if (refusal !== undefined) throw fail(`${pathOf('devices', name)}: ${refusal}`)
    if (backends[device.backend]?.vsockDaemon === undefined) continue
    vsock = name
    const at = pathOf('devices', name)
    const cannot = `${at}: its daemon reads the guest's memory, so it has to leave`
    if (board?.machine === 'microvm') throw fail(`${cannot}, and machine microvm lets none go`)
    if (!canBeUnplugged(record, name)) {
      const isQ35 = /q35/.test(board?.machine ?? '')
      const why = isQ35
        ? 'the first bus of q35 lets none go, want it in a root port'
        : 'it shares its slot or is behind a bridge, want it in a slot of its own'
      throw fail(`${cannot}, and ${why}`)
    }
    if (!wasRunning) throw fail(`${cannot}, and the guest is paused, want it running`)
  }
  if (hasAgent && !wasRunning)
    throw fail(`instance ${key}: paused, and its agent cannot be asked, want it running or without_agent`)
  return vsock
}

const UNFINISHED: readonly string[] = [
  ...['plug', 'reset', 'replace', 'snapshot', 'merge', 'suspend', 'memory', 'revert', 'replug'],
]

function refusalOf({ disk }: Device, backend: Backend | undefined): string | undefined {
  if (disk?.nvme) return 'an NVMe disk cannot be saved, want a virtio one'
  if (backend?.vhostUser !== undefined)
    return "a vhost-user daemon reads the guest's memory, want it unplugged"
  if (backend?.virtiofsd !== undefined) return "virtiofsd reads the guest's memory, want it unplugged"
  if (backend?.folder !== undefined) return 'a folder that QEMU serves cannot be saved'
  if (backend?.file?.access === File_Access.SCRATCH)
    return 'what the guest has written to access SCRATCH is not saved, want READ_WRITE'
  return undefined
}

/** The files of its disks, as they are now. */
export async function disksOf(instance: MachineInstance): Promise<readonly OutsideFile[]> {
  const disks = Object.entries(specificationOf(instance).backends).flatMap(([backend, { file }]) =>
    file === undefined
      ? []
      : [{ field: pathOf('backends', backend, 'file', 'path'), backend, path: file.path }],
  )
  return await Promise.all(disks.map(outsideFacts))
}

/** Throws FAILED_PRECONDITION for a disk that another has written since QEMU has left it. */
async function refuseWrites(instance: MachineInstance, disks: readonly OutsideFile[]): Promise<void> {
  for (const { changed, field, path } of await disksOf(instance))
    if (disks.find((disk) => disk.field === field)?.changed !== changed)
      throw new AgentError('FAILED_PRECONDITION', `${field}: ${path}: another has written it meanwhile`)
}

/**
 * What is not in the folder, now that QEMU has left it; `kept` are the keys of backends whose content is kept elsewhere.
 * Throws FAILED_PRECONDITION for a disk that another has written since.
 */
export async function outsideOf(
  instance: MachineInstance,
  disks: readonly OutsideFile[],
  kept: ReadonlySet<string>,
): Promise<readonly OutsideFile[]> {
  await refuseWrites(instance, disks)
  const { board } = specificationOf(instance)
  const boot = (['kernel', 'initrd', 'vmlinux'] as const).flatMap((name) =>
    board?.[name] ? [{ field: `board.${name}`, backend: '', path: board[name] }] : [],
  )
  return await Promise.all([
    ...boot.map(outsideFacts),
    ...disks.filter(({ backend }) => !kept.has(backend)).map(withSample),
  ])
}
