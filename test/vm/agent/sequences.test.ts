import { cpSync, mkdirSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { tool } from '../../../src/build/tool.ts'
import { connectAgent } from '../../../src/microvm/connect-agent.ts'
import type { GuestParts } from '../../../src/microvm/guest-spec.ts'
import { agentOf } from '../../../src/microvm/run/container-session.ts'
import { specKey } from '../../../src/microvm/spec.ts'
import { type SharedFolder, shareFolder } from '../../../src/microvm/virtiofsd.ts'
import { REPLAYS, type Replay } from '../../sequences/all.ts'
import { NIC } from '../../sequences/network.ts'
import { replay } from '../../sequences/replay.ts'
import { SHARED_FOLDER } from '../../sequences/sandbox-steps.ts'
import type { Ending } from '../../sequences/sequence.ts'
import { say } from '../../sequences/summary.ts'
import { dialWire } from '../../sequences/wires.ts'
import { busyboxRoot } from '../../support/containers/busybox-root.ts'
import { createContainerRequest } from '../../support/containers/container-requests.ts'
import type { Forward } from '../../support/rpc/forward.ts'
import { forwardToGuest } from '../../support/rpc/forward.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { bootTestGuest, cannotBoot, type TestGuest } from '../../support/vm/boot-guest.ts'
import { consoleLine, GUEST_PROC } from '../../support/vm/guest-pod.ts'

/** A guest and the connection to its agent, which may have been restarted several times. */
interface Machine {
  readonly guest: TestGuest
  readonly way: Forward
  readonly share: SharedFolder
  restarts: number
}

/** The first free slots. */
const SLOTS = { swap: 6, nic: 7, share: 8 } as const

const folder = temporaryFolder()
/** The folder that a shim shares with its guest: it has a folder for each container, with its root. */
const sharedFolder = join(folder, 'shared')

/** DestroySandbox powers a guest off, so only the last replay in a guest ends with it. */
const endingOf = (one: Replay, all: readonly Replay[]): Ending =>
  one === all.at(-1) ? 'DestroySandbox' : 'dead agent'

describe.skipIf(cannotBoot() !== undefined).each([
  { cgroups: 'v2', append: [], replays: REPLAYS },
  // The order is reversed, so that another sequence is the last one.
  { cgroups: 'v1', append: ['systemd.unified_cgroup_hierarchy=0'], replays: REPLAYS.toReversed() },
])(
  'the order in which callers call, replayed in a guest with cgroups $cgroups',
  ({ cgroups, append, replays }) => {
    let machine: Machine | undefined
    afterAll(stop)

    async function boot(): Promise<Machine> {
      mkdirSync(sharedFolder, { recursive: true })
      const share = await shareFolder(sharedFolder, join(folder, 'share.sock'))
      try {
        const guest = await bootTestGuest({ append, extra: await devices(share) })
        return { guest, way: await forwardToGuest(guest), share, restarts: 0 }
      } catch (error) {
        await share.close()
        throw error
      }
    }

    async function stop(): Promise<void> {
      machine?.way.close()
      await machine?.guest.stop()
      await machine?.share.close()
      machine = undefined
    }

    async function play({ caller, sequenceIn, framing }: Replay, ending: Ending, on: Machine): Promise<void> {
      const { guest, way } = on
      const disk = { driver: 'blk', source: guest.rootSource, fstype: 'ext4' }
      const unset = { driverOptions: [], options: [], fsGroup: undefined, shared: false }
      const disks = (paths: readonly string[]) =>
        paths.map((mountPoint) => ({ ...disk, ...unset, mountPoint }))
      // agent-ctl shares no folder: its bundle is inside the guest.
      const roots = caller === 'agent-ctl' ? disks : 'shared folder'
      let root = ''
      const sequence = sequenceIn({ roots, isGuest: true, swapDisk: [SLOTS.swap] }, ending)
      const reports = await replay(sequence, {
        dial: () => dialWire(way, framing, sequence),
        share: async (path) => {
          root = path
          if (roots === 'shared folder') shareRoot(path)
        },
        killAgent: () => killAgent(on, root),
      })
      say(`${sequence.caller} over ${framing}, in a guest with cgroups ${cgroups}, to its ${ending}`, reports)
    }

    it.each(replays)('$caller over $framing', async (one) => {
      machine ??= await boot()
      const ending = endingOf(one, replays)
      try {
        await play(one, ending, machine)
        if (ending === 'DestroySandbox') {
          expect(await machine.guest.guest.vm.exited).toEqual({ code: 0, signal: undefined })
          await stop()
        }
      } catch (error) {
        const text = machine.guest.consoleText()
        // The next replay, or the next try, needs a fresh guest.
        await stop()
        throw new Error(`the console:\n${text}`, { cause: error })
      }
    })
  },
)

/** Copies a container's root to the folder that the guest sees at `path`. */
function shareRoot(path: string): void {
  const target = join(sharedFolder, path.slice(SHARED_FOLDER.length))
  // The previous replay used the same ids.
  rmSync(target, { recursive: true, force: true })
  cpSync(busyboxRoot(temporaryFolder()), target, { recursive: true, verbatimSymlinks: true })
}

/** The objects of the calls: the shared folder, a disk that is prepared for swapping, and a network interface. */
async function devices(share: SharedFolder): Promise<NonNullable<GuestParts['extra']>> {
  const path = join(folder, 'swap')
  writeFileSync(path, '')
  truncateSync(path, 16 * 2 ** 20)
  await tool('mkswap', [path], { debianPackage: 'util-linux' })
  const [swap, swapFile] = [specKey('swap'), specKey('swap-file')]
  const [nic, network] = [specKey('nic'), specKey('network')]
  const [folders, virtiofsd] = [specKey('folders'), specKey('virtiofsd')]
  return {
    devices: {
      [swap]: { kind: 'disk', slot: SLOTS.swap, serial: 'swap', backend: swapFile },
      [folders]: { kind: 'share', slot: SLOTS.share, tag: 'kataShared', backend: virtiofsd },
      [nic]: { kind: 'nic', slot: SLOTS.nic, mac: NIC.mac.toLowerCase(), backend: network },
    },
    backends: {
      [swapFile]: { kind: 'file', path, access: 'scratch' },
      [network]: { kind: 'user-network', forwards: [] },
      [virtiofsd]: share.backend,
    },
  }
}

/** Lets a container kill every process of the guest but PID 1, and waits for the next agent. */
async function killAgent(machine: Machine, root: string): Promise<void> {
  const { guest, vm } = { guest: machine.guest, vm: machine.guest.guest.vm }
  const own = await connectAgent(guest.guest.link, vm.gone)
  const agent = agentOf(own)
  const kill = ['sh', '-c', 'echo i > /guest/proc/sysrq-trigger']
  await agent.createContainer(createContainerRequest('killer', root, kill, { mounts: [GUEST_PROC] }))
  // The agent may die before it has answered.
  await agent.startContainer({ containerId: 'killer' }).catch(() => {})
  machine.restarts += 1
  await consoleLine(
    guest,
    new RegExp(`vminit: the agent was killed by signal 9: restart ${machine.restarts} in`),
  )
  await own.closed
  const next = await connectAgent(guest.guest.link, vm.gone)
  next.close()
}
