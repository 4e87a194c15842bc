import { truncateSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { tool } from '../../scripts/apt/tool.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../scripts/temporary-folder.ts'
import { connectAgent } from '../../src/microvm/connect-agent.ts'
import type { GuestParts } from '../../src/microvm/guest-spec.ts'
import { agentOf } from '../../src/microvm/run/container-session.ts'
import { specKey } from '../../src/microvm/spec-key.ts'
import { container } from '../host/container-requests.ts'
import type { Forward } from '../rpc/forward.ts'
import { REPLAYS, type Replay } from '../sequences/all.ts'
import { NIC } from '../sequences/network.ts'
import { replay } from '../sequences/replay.ts'
import type { Ending } from '../sequences/sequence.ts'
import { say } from '../sequences/summary.ts'
import { dialWire } from '../sequences/wires.ts'
import { bootTestGuest, cannotBoot, type TestGuest } from './boot-guest.ts'
import { forwardTo } from './forward.ts'
import { consoleLine, GUEST_PROC } from './guest-pod.ts'

/** A guest and how to get at its agent, which may have been started again some times. */
interface Machine {
  readonly guest: TestGuest
  readonly way: Forward
  restarts: number
}

/** The first that are free. */
const SLOTS = { swap: 6, nic: 7 } as const

const folder = makeTemporaryFolder(tmpdir())
afterAll(() => removeTemporaryFolder(folder))

/** DestroySandbox powers a guest off, so only the last of a guest's replays ends in it. */
const endingOf = (one: Replay, all: readonly Replay[]): Ending =>
  one === all.at(-1) ? 'DestroySandbox' : 'dead agent'

describe.skipIf(cannotBoot() !== undefined).each([
  { cgroups: 'v2', append: [], replays: REPLAYS },
  // The other way around, so that another sequence comes last.
  { cgroups: 'v1', append: ['systemd.unified_cgroup_hierarchy=0'], replays: REPLAYS.toReversed() },
])(
  'the order in which callers call, replayed in a guest with cgroups $cgroups',
  ({ cgroups, append, replays }) => {
    let machine: Machine | undefined
    afterAll(stop)

    async function boot(): Promise<Machine> {
      const guest = await bootTestGuest({ append, extra: await devices() })
      return { guest, way: await forwardTo(guest), restarts: 0 }
    }

    async function stop(): Promise<void> {
      machine?.way.close()
      await machine?.guest.stop()
      machine = undefined
    }

    async function play({ sequenceIn, framing }: Replay, ending: Ending, on: Machine): Promise<void> {
      const { guest, way } = on
      const disk = { driver: 'blk', source: guest.rootSource, fstype: 'ext4' }
      const unset = { driverOptions: [], options: [], fsGroup: undefined, shared: false }
      let root = ''
      const roots = (paths: readonly string[]) => {
        root = paths[0] ?? ''
        return paths.map((mountPoint) => ({ ...disk, ...unset, mountPoint }))
      }
      const sequence = sequenceIn({ roots, isGuest: true, swapDisk: [SLOTS.swap] }, ending)
      const reports = await replay(sequence, {
        dial: () => dialWire(way, framing, sequence),
        // The disk that stands in is there since CreateSandbox.
        share: async () => {},
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
        // The next one, or the next try, needs a guest that nothing happened to.
        await stop()
        throw new Error(`the console:\n${text}`, { cause: error })
      }
    })
  },
)

/** What the calls are about: a disk that is prepared for swapping, and a network interface. */
async function devices(): Promise<NonNullable<GuestParts['extra']>> {
  const path = join(folder, 'swap')
  writeFileSync(path, '')
  truncateSync(path, 16 * 2 ** 20)
  await tool('mkswap', [path], { debianPackage: 'util-linux' })
  const [swap, swapFile] = [specKey('swap'), specKey('swap-file')]
  const [nic, network] = [specKey('nic'), specKey('network')]
  return {
    devices: {
      [swap]: { kind: 'disk', slot: SLOTS.swap, serial: 'swap', backend: swapFile },
      [nic]: { kind: 'nic', slot: SLOTS.nic, mac: NIC.mac, backend: network },
    },
    backends: {
      [swapFile]: { kind: 'file', path, access: 'scratch' },
      [network]: { kind: 'user-network', forwards: [] },
    },
  }
}

/** Has a container kill every process of the guest but PID 1, and waits for the next agent. */
async function killAgent(machine: Machine, root: string): Promise<void> {
  const { guest, vm } = { guest: machine.guest, vm: machine.guest.guest.vm }
  const own = await connectAgent(guest.guest.link, vm.gone)
  const agent = agentOf(own)
  const { OCI, ...request } = container('killer', root, ['sh', '-c', 'echo i > /guest/proc/sysrq-trigger'])
  await agent.createContainer({ ...request, OCI: { ...OCI, Mounts: [...(OCI?.Mounts ?? []), GUEST_PROC] } })
  // It may die before it has answered.
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
