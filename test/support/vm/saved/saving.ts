import { setTimeout as delay } from 'node:timers/promises'
import { hostTscKhz } from '../../../../src/host/qemu/host.ts'
import { qemuArguments } from '../../../../src/host/qemu/qemu-arguments.ts'
import type { QmpClient } from '../../../../src/host/qemu/qmp/client.ts'
import type { GuestLink } from '../../../../src/host/qemu/vsock/guest-link.ts'
import { ensureImage } from '../../../../src/image/ensure-image.ts'
import { type GuestParts, guestSpec } from '../../../../src/microvm/run/guest-spec.ts'
import { CRUN, progress } from '../boot-guest.ts'

const MEMORY_MIB = 512
const IGNORE_SHARED = { capabilities: [{ capability: 'x-ignore-shared', state: true }] }
const LIMIT_MS = 300_000

interface SavableMachine {
  readonly link: GuestLink
  readonly append: readonly string[]
  /** Of QMP. */
  readonly socket: string
  /** The file that is the guest's memory. */
  readonly memory: string
  /** Whether it copies what it writes to the memory. */
  readonly isPrivate?: boolean
  /** A busybox disk, at `05`. */
  readonly disk: string
  readonly isRestored: boolean
}

/** QEMU's words for a guest whose memory is a file, so that its state without that is small. */
export async function savableWords(machine: SavableMachine): Promise<readonly string[]> {
  const { append, disk, isPrivate = false, isRestored, link, memory, socket } = machine
  const parts: GuestParts = {
    ...{ machine: 'pc-q35-7.2', memoryMib: MEMORY_MIB, cpus: 1, append: [CRUN, ...append], link },
    boot: await ensureImage({ progress }),
    containerRoot: undefined,
  }
  const words = qemuArguments(guestSpec(parts), {
    ...{ acceleration: 'tcg', qmp: { socket }, tscKhz: hostTscKhz(), isPaused: isRestored },
  })
  const file = `memory-backend-file,id=memory,size=${MEMORY_MIB}M,mem-path=${memory}`
  return [
    ...words.map((word) => (word.startsWith('pc-q35') ? `${word},memory-backend=memory` : word)),
    ...['-object', `${file},share=${isPrivate ? 'off' : 'on'}`],
    ...['-blockdev', `driver=raw,node-name=busybox,file.driver=file,file.filename=${disk}`],
    ...['-device', 'virtio-blk-pci,drive=busybox,addr=0x5'],
    ...(isRestored ? ['-incoming', 'defer'] : []),
    // The state is saved by a program.
  ].filter((word, at, all) => word !== '-sandbox' && all[at - 1] !== '-sandbox')
}

/** Stops the guest, and writes its state to a file. */
export async function saveState(qmp: QmpClient, file: string): Promise<void> {
  await run(qmp, 'stop')
  await run(qmp, 'migrate-set-capabilities', IGNORE_SHARED)
  await run(qmp, 'migrate', { uri: `exec:cat > ${file}` })
  await until(qmp, 'query-migrate', ['completed'])
}

/** Lets a restored guest go on from a state. */
export async function goOnFrom(qmp: QmpClient, file: string): Promise<void> {
  await run(qmp, 'migrate-set-capabilities', IGNORE_SHARED)
  await run(qmp, 'migrate-incoming', { uri: `exec:cat ${file}` })
  await until(qmp, 'query-status', ['paused', 'running'])
  await run(qmp, 'cont')
}

export function run(
  qmp: QmpClient,
  execute: string,
  args: Readonly<Record<string, unknown>> = {},
): Promise<unknown> {
  return qmp.command({ execute, arguments: args }, limit())
}

export function limit(): AbortSignal {
  return AbortSignal.timeout(LIMIT_MS)
}

async function until(qmp: QmpClient, query: string, wanted: readonly string[]): Promise<void> {
  for (;;) {
    const { status } = (await run(qmp, query)) as { readonly status?: string }
    if (status !== undefined && wanted.includes(status)) return
    if (status === 'failed') throw new Error(`${query}: failed`)
    await delay(5)
  }
}
