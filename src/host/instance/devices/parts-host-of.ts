import { relative } from 'node:path'
import { blockDevicesOf } from '../../qemu/block-devices.ts'
import type { PartsHost } from '../../qemu/parts-host.ts'
import type { VmSpec } from '../../spec/spec.ts'
import { specKey } from '../../spec/spec-key.ts'
import type { MachineInstance } from '../instance.ts'
import type { PlannedStep } from '../machine/steps.ts'
import { RunningOpener } from './running-opener.ts'

/** What opens files for the instance's QEMU, which cannot do so itself; undefined without walls. */
export function openerOf({ context }: MachineInstance): RunningOpener | undefined {
  return context.isWalled ? new RunningOpener() : undefined
}

/** What this host has for the parts of an instance's machine, the sockets of its daemons among them. */
export function partsHostOf(
  { record, recorded, context }: MachineInstance,
  spec: VmSpec,
  {
    opener,
    planned = [],
    secretValues,
  }: {
    readonly opener?: RunningOpener | undefined
    readonly planned?: readonly PlannedStep[]
  } & Pick<PartsHost, 'secretValues'> = {},
): PartsHost {
  const daemons = [...recorded.steps, ...planned].filter(({ step }) => step === 'daemon')
  // A QEMU within walls may not pass the folders above its own, which is its working directory.
  const pathFor = (socket: string) => (context.isWalled ? relative(context.folder, socket) : socket)
  const sockets = new Map(
    daemons.map(({ words: [key = '', , socket = ''] }) => [specKey(key), pathFor(socket)]),
  )
  return { cid: record.cid, blockDevices: blockDevicesOf(spec), sockets, opener, secretValues }
}
