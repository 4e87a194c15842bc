import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { basename, dirname, join } from 'node:path'
import { expect, vi } from 'vitest'
import { SetPolicyRequest } from '../../../src/gen/agent.ts'
import { podWithoutSharedFolder } from '../../recordings/no-shared-folder.ts'
import { recordedRequest } from '../../recordings/recorded-request.ts'
import { recordingNamed, withMoreTime } from '../../recordings/recording.ts'
import { replay as replayRecording } from '../../recordings/replay.ts'
import { recordedRoot, supplyContainer } from '../../recordings/supplies.ts'
import { withoutGuest } from '../../recordings/without-guest.ts'
import { type Replay, replayOf } from '../../sequences/all.ts'
import { NIC } from '../../sequences/network.ts'
import { replay as replaySequence } from '../../sequences/replay.ts'
import { dialWire } from '../../sequences/wires.ts'
import { busyboxRoot } from '../containers/busybox-root.ts'
import { podOf } from '../containers/pod.ts'
import { cgroupsOf, inNamespaceOf, leftoversOf, NOTHING_LEFT } from '../host/agent-pod.ts'
import { type AgentProcess, startAgent } from '../host/agent-process.ts'
import { makeNetworkNamespace, type NetworkNamespace } from '../host/network-namespace.ts'
import { noPolicyAddon } from '../os/policy-addon.ts'
import { forward } from '../rpc/forward.ts'
import { temporaryFolder } from '../temporary-folder.ts'
import { keyedLife } from './keyed-life.ts'
import { type Kept, keepsOnly, keptOf, live, makeWatched } from './lives.ts'
import { nothingOfLosses, plannedLosses } from './planned-losses.ts'
import { nothingOfRenames, renames } from './renames.ts'
import { oneRun } from './share.ts'

export interface Caller {
  readonly name: string
  readonly unavailable?: string | undefined
  readonly links: readonly string[]
  /** The addresses, by name, of the links' peers that are in their own namespace. */
  readonly peers?: Readonly<Record<string, readonly string[]>>
  readonly options: Parameters<typeof startAgent>[0]
  readonly play: (started: AgentProcess) => Promise<void>
  /** Looks for leftovers; nothing kills the agent meanwhile. */
  readonly check: (started: AgentProcess) => Promise<void>
}

const AGENT_CTL_LINK = 'eth0 address 02:00:00:00:00:77 type veth peer name p0 address 02:00:00:00:00:78'
const SHIM_LINK = 'nic0 address b6:97:f5:62:37:bf type veth peer name p0'
const POD_LINK = 'nic0 address f2:50:9d:37:a3:45 type veth peer name p0'
const NETWORK_LINKS = [
  'nic0 address 02:00:00:00:99:02 type veth peer name p0',
  'nic1 address f2:82:72:0b:58:05 type veth peer name p1',
]
/** The peers answer pings. */
const NETWORK_PEERS = { p0: ['10.99.0.1/24', 'fd99::1/64 nodad'], p1: ['10.98.0.1/24'] }
const SEQUENCE_LINK = `nic0 address ${NIC.mac} type veth peer name p0`

export async function allCallers(folder: string): Promise<readonly Caller[]> {
  const root = recordedRoot(folder)
  const recorded = (name: string, links: readonly string[] = []): Caller => {
    const hasSharedFolder = name !== NO_SHARED_FOLDER
    const recording = withMoreTime(
      hasSharedFolder ? withoutGuest(recordingNamed(name)) : podWithoutSharedFolder(),
    )
    const containers = recording.lines.flatMap((line) =>
      line.kind === 'call' && line.method === 'CreateContainer' ? [String(line.request.container_id)] : [],
    )
    const isDestroyed = recording.lines.some(
      (line) => line.kind === 'call' && line.method === 'DestroySandbox',
    )
    return {
      ...{ name, links, options: {} },
      play: async (started) => {
        await replayRecording(recording, {
          dial: async () => {
            const socket = connect(started.path)
            await once(socket, 'connect')
            return socket
          },
          prepare: async (call) => supplyContainer(call, root, started.inside, hasSharedFolder),
        })
      },
      check: async (started) => {
        if (isDestroyed) await destroyed(started, containers)
        else {
          // expect.poll() works for one test at a time only.
          const nothingLeft = () => expect(leftoversOf(started, ...containers)).toEqual(NOTHING_LEFT)
          await vi.waitFor(nothingLeft, { timeout: 20_000 })
        }
      },
    }
  }
  const sequence = ({ caller, framing, sequenceIn }: Replay): Caller => {
    const one = sequenceIn({ isGuest: false }, 'DestroySandbox')
    return {
      ...{ name: `sequence of ${caller}`, links: [SEQUENCE_LINK], options: {} },
      play: async (started) => {
        const way = await forward(join(folder, `${caller}.sock`), async () => connect(started.path))
        try {
          await replaySequence(one, {
            dial: () => dialWire(way, framing, one),
            share: async (path) => {
              inNamespaceOf(started, 'mkdir', '-p', path)
              inNamespaceOf(started, 'mount', '--bind', root, path)
            },
            killAgent: () => Promise.reject(new Error('the killer does this')),
          })
        } finally {
          way.close()
        }
      },
      check: async (started) => {
        const paths = ['', ...one.sharedCgroups].flatMap((path) =>
          one.containers.map((id) => `${path}/${id}`),
        )
        await destroyed(started, [...paths, ...one.sharedCgroups])
      },
    }
  }
  const watched = makeWatched(temporaryFolder())
  return [
    recorded('go-shim.ctr-run'),
    recorded('go-shim.exec-tty-pause-metrics'),
    recorded('go-shim.cri-pod-five-containers', [POD_LINK]),
    recorded(NO_SHARED_FOLDER, [SHIM_LINK]),
    { ...recorded('go-shim.ctr-network', NETWORK_LINKS), peers: NETWORK_PEERS },
    recorded('runtime-rs.ctr-run'),
    recorded('runtime-rs.exec-tty-pause-metrics'),
    recorded('runtime-rs.refused-today'),
    recorded('agent-ctl.full-spec', [AGENT_CTL_LINK]),
    {
      ...recorded(EVERY_COMMAND, [AGENT_CTL_LINK]),
      unavailable: await noPolicyAddon(),
      options: underOwnPolicy(folder),
    },
    ...['the Go runtime', 'runtime-rs', 'agent-ctl'].map((caller) => sequence(replayOf(caller, 'ttrpc'))),
    {
      ...{ name: RENAMES, links: [], options: {} },
      play: (started) => renames(started, root),
      check: nothingOfRenames,
    },
    losses(root),
    ...['runc', 'crun'].map((runtime) => lives(runtime, busyboxRoot(temporaryFolder()), watched)),
    callsWithKeys(busyboxRoot(temporaryFolder())),
  ]
}

function losses(root: string): Caller {
  const folder = temporaryFolder()
  const settings = {
    stdio_dial: `"unix:${folder}"`,
    stream_grace: '{ secs = 60, nanos = 0 }',
    stream_resume: 'true',
  }
  return {
    ...{ name: 'planned losses and repairs', links: [], options: { settings } },
    play: (started) => plannedLosses(started, root, folder),
    check: nothingOfLosses,
  }
}

function callsWithKeys(root: string): Caller {
  const id = 'keyed'
  return {
    ...{ name: 'calls with keys over connections that break', links: [], options: {} },
    play: async (started) => {
      await started.agent.createSandbox({ sandboxId: 'pod', hostname: 'podname' })
      await keyedLife(started, root, id)
    },
    check: async (started) => {
      await vi.waitFor(() => expect(leftoversOf(started, id)).toEqual(NOTHING_LEFT), { timeout: 20_000 })
    },
  }
}

/** A caller that checks the leftovers of four lives, each of another kind, beside a container that is there all the time. */
function lives(runtime: string, root: string, watched: string): Caller {
  const numbers = [2, 3, 4, 5]
  const beside = 'l1'
  let before: Kept | undefined
  const caller = {
    ...{ name: `four lives of containers of ${runtime}`, links: [], options: { runtime } },
    play: async ({ agent }: AgentProcess) => {
      await agent.createSandbox({ sandboxId: 'pod', hostname: 'podname' })
      const pod = podOf(agent, root)
      const init = await pod.run(beside, ['sh', '-c', 'read line; exit 6'])
      for (const number of numbers) await live(pod, watched, `l${number}`, number)
      await init.write('end\n')
      expect(await init.wait()).toBe(6)
      await pod.remove(beside)
    },
  }
  const ended = async (started: AgentProcess) => {
    const ids = [beside, ...numbers.map((number) => `l${number}`)]
    await vi.waitFor(() => expect(leftoversOf(started, ...ids)).toEqual(NOTHING_LEFT), { timeout: 20_000 })
    // The number of an agent's open files depends on its calls.
    await anotherAgent(started)
  }
  const keptUndisturbed = async () => {
    let kept: Kept | undefined
    const check = async (started: AgentProcess) => {
      await ended(started)
      kept = await keptOf(started)
    }
    await playCaller({ ...caller, check }, () => async () => 0)
    if (kept === undefined) throw new Error('nothing was looked at')
    return kept
  }
  return {
    ...caller,
    check: async (started) => {
      before ??= await keptUndisturbed()
      await ended(started)
      await keepsOnly(started, before)
      expect(started.log.filter(({ msg }) => msg === 'undo step failed')).toEqual([])
    },
  }
}

async function anotherAgent(started: AgentProcess): Promise<void> {
  const booted = () => started.log.filter(({ msg }) => msg === 'booted').length
  const before = booted()
  await vi.waitFor(() => process.kill(started.agentPid(), 'SIGKILL'))
  await vi.waitFor(() => expect(booted()).toBeGreaterThan(before), { timeout: 20_000 })
}

const RENAMES = 'renames of a pod'
const NO_SHARED_FOLDER = 'go-shim.no-shared-fs'
const EVERY_COMMAND = 'agent-ctl.every-command'

function underOwnPolicy(folder: string): Caller['options'] {
  const { policy } = recordedRequest(SetPolicyRequest, EVERY_COMMAND, 149)
  const file = join(folder, 'policy.rego')
  writeFileSync(file, policy)
  return { withPolicyEngine: true, environment: { KATA_AGENT_POLICY_FILE: file } }
}

async function destroyed(started: AgentProcess, cgroups: readonly string[]): Promise<void> {
  expect(await started.exited).toBe(0)
  expect(cgroups.flatMap((id) => cgroupsOf(id, started))).toEqual([])
}

/** `disturb` begins the kills and returns a function that ends them. Returns the number of kills. */
export async function playCaller(
  caller: Caller,
  disturb: (started: AgentProcess) => () => Promise<number>,
  environment: Readonly<Record<string, string>> = {},
): Promise<number> {
  const network = await makeNetworkNamespace(...caller.links)
  const host = await connectPeers(network, caller)
  const { options } = caller
  const started = await startAgent({
    ...{ ...options, network },
    environment: { ...options?.environment, ...environment },
  })
  let kills = 0
  const play = async () => {
    // The tmpfs hides the machine's memory blocks, so the agent brings none of them online.
    inNamespaceOf(started, 'mount', '-t', 'tmpfs', 'tmpfs', '/sys/devices/system/memory')
    const stopKills = disturb(started)
    try {
      await caller.play(started)
    } finally {
      kills = await stopKills()
    }
    await caller.check(started)
  }
  try {
    await oneRun(caller.name, started, play())
    return kills
  } finally {
    await started.stop()
    await network.close()
    await host?.close()
  }
}

/** Brings up the links' peers. Returns the namespace of the peers with addresses. */
async function connectPeers(
  network: NetworkNamespace,
  { name, links, peers }: Caller,
): Promise<NetworkNamespace | undefined> {
  network.ip('link set lo up')
  if (peers === undefined) {
    if (links.length > 0 && !name.startsWith('sequence')) network.ip('link set p0 up')
    return undefined
  }
  const host = await makeNetworkNamespace()
  for (const [peer, addresses] of Object.entries(peers)) {
    network.ip(`link set ${peer} netns ${basename(dirname(dirname(host.path)))}`)
    for (const address of addresses) host.ip(`address add ${address} dev ${peer}`)
    host.ip(`link set ${peer} up`)
  }
  return host
}
