import { once } from 'node:events'
import { mkdirSync, truncateSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { messageOf } from '../../../src/base/errors.ts'
import { tool } from '../../../src/build/tool.ts'
import { connectAgent } from '../../../src/client/connection/connect-agent.ts'
import { agentOf } from '../../../src/client/container/container-session.ts'
import type { RecordedCall } from '../../../src/ctl/recording/recording.ts'
import { CreateContainerRequest } from '../../../src/gen/agent.ts'
import type { Device } from '../../../src/host/spec/spec.ts'
import { specKey } from '../../../src/host/spec/spec-key.ts'
import { DEFAULT_KERNEL } from '../../../src/image/packages.ts'
import type { GuestParts } from '../../../src/microvm/run/guest-spec.ts'
import { podWithoutSharedFolder } from '../../recordings/no-shared-folder.ts'
import { recordingNamed, withMoreTime } from '../../recordings/recording.ts'
import { replay as replayRecording } from '../../recordings/replay.ts'
import { recordedRoot, SHARED_FOLDER, supplyContainer, supplyRoot } from '../../recordings/supplies.ts'
import { type Replay, replayOf } from '../../sequences/all.ts'
import { NIC } from '../../sequences/network.ts'
import { replay as replaySequence } from '../../sequences/replay.ts'
import type { Ending } from '../../sequences/sequence.ts'
import { say } from '../../sequences/summary.ts'
import { dialWire } from '../../sequences/wires.ts'
import { createContainerRequest } from '../../support/containers/container-requests.ts'
import { podOf } from '../../support/containers/pod.ts'
import { type Forward, forwardToGuest } from '../../support/rpc/forward.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { type AgentKiller, agentKillingHook, startAgentKiller } from '../../support/vm/agent-killer.ts'
import {
  bootTestGuest,
  cannotBoot,
  type TestGuest,
  type TestGuestOptions,
} from '../../support/vm/boot-guest.ts'
import { consoleLine } from '../../support/vm/guest-pod.ts'
import { type HostNetwork, makeHostNetwork } from '../../support/vm/host-network.ts'
import { plugDisk } from '../../support/vm/hot-plug/hot-plug.ts'
import { copyTree } from './copy-tree.ts'

interface Machine {
  readonly guest: TestGuest
  readonly way: Forward
  readonly network: HostNetwork
  restarts: number
}

/** The recorded PCI path of the swap disk names the slots of the Go shim's bridge and of the disk, 2. */
const SLOTS = { bridge: 2, share: 8, firstNic: 9 } as const
const BRIDGE = specKey('bridge')
const SWAP_SLOT = 2

/** The host's ends of the network of `go-shim.ctr-network`; no other recording uses its network. */
const TAPS = { tap0: ['10.99.0.1/24', 'fd99::1/64 nodad'], tap1: ['10.98.0.1/24'] }

/** The interfaces of all recordings and sequences; interfaces without a tap are unconnected. */
const NICS = [
  { mac: '02:00:00:00:99:02', tap: 'tap0' },
  { mac: 'f2:82:72:0b:58:05', tap: 'tap1' },
  { mac: '02:83:c9:8a:32:cb' },
  { mac: 'b6:97:f5:62:37:bf' },
  { mac: NIC.mac },
] as const

/** The agent dies beside this many calls of the recording, each time after at most `withinMs`. */
const WITH_DEATHS = { name: 'go-shim.cri-virtio-mem-swap', fewest: 3, most: 6, withinMs: 300 } as const

const NO_SHARED_FOLDER = podWithoutSharedFolder()

/**
 * Every recording runs in one guest, and cgroup v1 in a guest with Debian 12's kernel. Each OCI runtime has recordings of
 * both shims.
 */
const GUESTS = [
  {
    what: 'cgroups v2 and runc',
    kernel: DEFAULT_KERNEL,
    append: [],
    cpus: 2,
    calls: [
      replayOf('the Go runtime', 'grpc'),
      replayOf('runtime-rs', 'ttrpc'),
      'go-shim.exec-tty-pause-metrics',
      'go-shim.cri-pod-five-containers',
      WITH_DEATHS.name,
      'go-shim.ctr-network',
      // Comes last: nothing mounts the shared folder, which holds the root of the killing container.
      NO_SHARED_FOLDER.name,
    ],
  },
  {
    what: 'cgroups v2 and crun',
    kernel: DEFAULT_KERNEL,
    append: ['agent.runtime=crun'],
    // These callers ask for one CPU at most, and a second one makes an emulated guest slower.
    cpus: 1,
    calls: [
      'runtime-rs.ctr-run',
      'runtime-rs.refused-today',
      'runtime-rs.exec-tty-pause-metrics',
      'go-shim.ctr-run',
    ],
  },
  {
    what: 'cgroups v1 and crun',
    kernel: 'bookworm',
    append: ['systemd.unified_cgroup_hierarchy=0', 'agent.runtime=crun'],
    cpus: 2,
    calls: ['runtime-rs.exec-tty-pause-metrics', replayOf('the Go runtime', 'ttrpc')],
  },
] as const

const folder = temporaryFolder()
const sharedFolder = join(folder, 'shared')
let root: string
let smallRoot: string
beforeAll(() => {
  root = recordedRoot(folder)
  smallRoot = recordedRoot(join(folder, 'small'), ['sh', 'sleep', 'httpd', 'mkdir', 'id', 'cat'])
})

describe.skipIf(cannotBoot() !== undefined).each(GUESTS)(
  'the calls of known callers, replayed in a guest with $what',
  ({ what, calls, ...options }) => {
    let machine: Machine | undefined
    afterAll(stop)

    async function stop(): Promise<void> {
      const { way, guest, network } = machine ?? {}
      machine = undefined
      way?.close()
      await guest?.stop()
      await network?.close()
    }

    it.each(
      calls.map((call) => ({
        call,
        name: typeof call === 'string' ? call : `${call.caller} over ${call.framing}`,
      })),
    )('$name', async ({ call }) => {
      machine ??= await boot(options)
      // DestroySandbox powers a guest off, so only the last replay in a guest ends with it.
      const ending = call === calls.at(-1) ? 'DestroySandbox' : 'dead agent'
      try {
        if (typeof call === 'string') await playRecording(call, ending, machine)
        else await playSequence(call, ending, machine, what)
        if (ending === 'DestroySandbox') {
          expect(await machine.guest.guest.vm.exited).toEqual({ code: 0, signal: undefined })
          await stop()
        }
      } catch (error) {
        const text = machine?.guest.consoleText()
        process.stderr.write(`${messageOf(error)}\n`)
        // The next replay or try needs a fresh guest.
        await stop()
        throw new Error(`the console:\n${text}`, { cause: error })
      }
    })
  },
)

async function boot(options: Pick<TestGuestOptions, 'kernel' | 'append' | 'cpus'>): Promise<Machine> {
  mkdirSync(sharedFolder, { recursive: true })
  const network = await makeHostNetwork(TAPS)
  try {
    const guest = await bootTestGuest({
      ...options,
      extra: devices(),
      networkNamespace: network.namespace.path,
    })
    return { guest, way: await forwardToGuest(guest), network, restarts: 0 }
  } catch (error) {
    await network.close()
    throw error
  }
}

/** The shared folder, the network interfaces, and a bridge for the swap disk. */
function devices(): NonNullable<GuestParts['extra']> {
  const virtiofsd = specKey('virtiofsd')
  const nics = NICS.map(({ mac, ...end }, number) => {
    const backend = specKey(`network-${number}`)
    const device: Device = { kind: 'nic', slot: SLOTS.firstNic + number, mac, backend }
    const network =
      'tap' in end
        ? ({ kind: 'tap', interfaceName: end.tap } as const)
        : ({ kind: 'user-network', forwards: [] } as const)
    return { devices: { [specKey(`nic-${number}`)]: device }, backends: { [backend]: network } }
  })
  return {
    devices: {
      [BRIDGE]: { kind: 'pci-bridge', slot: SLOTS.bridge },
      [specKey('folders')]: { kind: 'share', slot: SLOTS.share, tag: 'kataShared', backend: virtiofsd },
      ...Object.assign({}, ...nics.map((nic) => nic.devices)),
    },
    backends: {
      [virtiofsd]: { kind: 'virtiofsd', path: sharedFolder },
      ...Object.assign({}, ...nics.map((nic) => nic.backends)),
    },
  }
}

/** Translates a path in the guest's shared folder to this side. */
function shared(path: string): string {
  return join(sharedFolder, path.slice(SHARED_FOLDER.length))
}

async function playRecording(name: string, ending: Ending, machine: Machine): Promise<void> {
  const deaths = name === WITH_DEATHS.name ? new Deaths(machine) : undefined
  const place = {
    dial: async () => {
      const socket = connect(machine.way.path)
      await once(socket, 'connect')
      return socket
    },
    prepare: async (call: RecordedCall) => {
      if (name === NO_SHARED_FOLDER.name) await copyRoot(call, machine)
      else supplyContainer(call, root, shared)
      if (call.method === 'AddSwap') await plugSwap(machine)
      await deaths?.before(call)
    },
  }
  const until = ending === 'dead agent' ? 'DestroySandbox' : undefined
  const recorded = name === NO_SHARED_FOLDER.name ? NO_SHARED_FOLDER : recordingNamed(name)
  const recording = deaths === undefined ? recorded : withMoreTime(recorded)
  const calls = await replayRecording(recording, place, until)
  const died = await deaths?.end()
  process.stderr.write(`${name}: ${calls} calls${died === undefined ? '' : `, deaths beside ${died}`}\n`)
  if (ending === 'dead agent') await killAgent(machine)
}

/** Kills the agent beside calls of a recording, each time at another moment. */
class Deaths {
  readonly #machine: Machine
  readonly #beside: string[] = []
  #killer: AgentKiller | undefined
  #dying = Promise.resolve('')
  #isDying = false

  constructor(machine: Machine) {
    this.#machine = machine
  }

  /** Await this before each call. The sandbox's first container can start once its devices are present. */
  async before({ method }: RecordedCall): Promise<void> {
    if (method === 'OnlineCPUMem') this.#killer ??= await this.#start()
    if (this.#killer === undefined || this.#isDying || this.#beside.length === WITH_DEATHS.most) return
    this.#isDying = true
    this.#beside.push(method)
    await this.#killer.begin(Math.random() * WITH_DEATHS.withinMs)
    this.#dying = this.#killer.killed().finally(() => {
      this.#isDying = false
    })
  }

  async end(): Promise<string> {
    await this.#dying
    expect(this.#beside.length).toBeGreaterThanOrEqual(WITH_DEATHS.fewest)
    this.#machine.restarts += this.#beside.length
    return this.#beside.join(', ')
  }

  async #start(): Promise<AgentKiller> {
    const { guest } = this.#machine.guest
    const killerRoot = `${SHARED_FOLDER}agent-killer`
    supplyRoot(root, shared(killerRoot))
    return await startAgentKiller(podOf(agentOf(await connectAgent(guest, guest.vm.gone)), killerRoot))
  }
}

async function playSequence(
  { sequenceIn, framing }: Replay,
  ending: Ending,
  machine: Machine,
  what: string,
): Promise<void> {
  const { way } = machine
  const sequence = sequenceIn({ isGuest: true }, ending)
  const reports = await replaySequence(sequence, {
    dial: () => dialWire(way, framing, sequence),
    share: async (path) => supplyRoot(root, shared(path)),
    killAgent: () => killAgent(machine),
  })
  say(`${sequence.caller} over ${framing}, in a guest with ${what}, to its ${ending}`, reports)
}

/** Copies the root of a container to the place of the disk of a shim without a shared folder. */
async function copyRoot({ method, requestBytes }: RecordedCall, { guest }: Machine): Promise<void> {
  if (method !== 'CreateContainer') return
  const { OCI } = CreateContainerRequest.decode(requestBytes ?? new Uint8Array())
  const own = await connectAgent(guest.guest, guest.guest.vm.gone)
  await copyTree(agentOf(own), smallRoot, OCI?.Root?.Path ?? '')
  own.close()
}

/** Plugs the disk of the recorded AddSwap into the bridge, as the Go shim did. */
async function plugSwap({ guest }: Machine): Promise<void> {
  const path = join(folder, 'swap')
  writeFileSync(path, '')
  truncateSync(path, 16 * 2 ** 20)
  await tool('mkswap', [path], { debianPackage: 'util-linux' })
  const disk = {
    key: specKey('swap'),
    device: { kind: 'disk', slot: SWAP_SLOT, serial: 'swap', backend: specKey('swap-file') },
    backend: { kind: 'file', path, access: 'read-write' },
    bus: BRIDGE,
  } as const
  await plugDisk(guest.guest.vm.qmp, disk, guest.guest.vm.gone)
}

/** Kills the agent with damaged state: the next agent ends, and the agent after it removes everything. */
async function killAgent(machine: Machine): Promise<void> {
  const { guest, vm } = { guest: machine.guest, vm: machine.guest.guest.vm }
  const killerRoot = `${SHARED_FOLDER}killer`
  supplyRoot(root, shared(killerRoot))
  const own = await connectAgent(guest.guest, vm.gone)
  const agent = agentOf(own)
  const hook = agentKillingHook(killerRoot, 'echo damaged > /run/microvm-agent/saved/sandbox')
  const request = createContainerRequest('killer', killerRoot, ['true'], {
    spec: { Hooks: { Poststart: [hook] } },
  })
  await agent.createContainer(request)
  // The last agent answers, once it has removed everything.
  await expect(agent.startContainer({ containerId: 'killer' })).rejects.toThrow('Dead agent: restarted')
  own.close()
  machine.restarts += 1
  await consoleLine(
    guest,
    new RegExp(`vminit: the agent was killed by signal 9: restart ${machine.restarts} in`),
  )
  machine.restarts += 1
}
