import { copyFileSync, cpSync, realpathSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { SIGKILL } from '../../src/base/signals.ts'
import { buildAgent, checkAgent } from '../../src/build/agent.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../src/build/temporary-folder.ts'
import type { AgentPod } from '../../test/support/host/agent-pod.ts'
import { endChild } from '../../test/support/processes.ts'
import type { RuntimeKind } from '../support/bare/bare-runtime.ts'
import { bareServers } from '../support/bare/bare-servers.ts'
import { bareStartMs } from '../support/bare/bare-start.ts'
import { buildMinimalAgent } from '../support/bare/minimal-agent.ts'
import { benchPod, brokerOf } from '../support/bench-pod.ts'
import { calls, measureCalls } from '../support/call-rounds.ts'
import { median, report } from '../support/figure.ts'
import { startListening } from '../support/listening-agent.ts'
import { cpuMsOf } from '../support/process-figures.ts'
import { elapsedMs, execTrue, type RuntimePair, withRuntime } from '../support/runtime-pair.ts'

/**
 * The agent and a minimal agent, which does the least that any agent in Node has to do behind vminit and the connection
 * broker, against the bare measure of each figure. The limits are goals; RemoveContainer's is 1.5 ms.
 */
const CALL_ROUNDS = 20
const CHECKS_A_ROUND = 512
const AT_ONCE = 32
const START_ROUNDS = 15
const EXEC_ROUNDS = 61
const LIFE_ROUNDS = 25
const WARM_UP_ROUNDS = 10

const LIFE_GOALS = { runc: 0.9, crun: 0.8 }
const REMOVE_GOAL_MS = 1.5

interface Trio extends RuntimePair {
  readonly kind: RuntimeKind
  readonly minimal: AgentPod
}

const SIDES = ['ours', 'minimal', 'bare'] as const
type Side = (typeof SIDES)[number]

/** The measurements of one figure, by turns. */
type Times = Readonly<Record<Side, number[]>>

const folder = makeTemporaryFolder(tmpdir())
const minimalFolder = join(folder, 'minimal')
// As in a guest: without a package.json above it, which Node would read and parse.
const agentFolder = join(folder, 'agent')
const servers = bareServers(folder)
try {
  cpSync(realpathSync(await buildAgent()), agentFolder, { recursive: true })
  await buildMinimalAgent(minimalFolder)
  await measureStarts()
  for (const kind of ['runc', 'crun'] as const) {
    await withTrio(kind, async (trio) => {
      if (kind === 'runc') await measureChecks(trio)
      await measureExecs(trio)
      await measureLives(trio)
    })
  }
  await measureDeaths()
} finally {
  await servers.stop()
  removeTemporaryFolder(folder)
}

/** Gives the minimal agent the specification of the agent's container `model`, and a container of that name. */
async function withTrio(kind: RuntimeKind, work: (trio: Trio) => Promise<void>): Promise<void> {
  await withRuntime(kind, async (pair) => {
    copyFileSync(pair.pod.started.inside('/run/kata-containers/model/config.json'), templateOf(kind))
    const minimal = await startMinimal(kind)
    const model = { containerId: 'model', execId: '' }
    try {
      await minimal.run('model', ['/bin/sleep', '1000000'])
      await work({ ...pair, kind, minimal })
    } finally {
      await minimal.agent.signalProcess({ ...model, signal: SIGKILL })
      await minimal.agent.waitProcess(model)
      await minimal.stop()
    }
  })
}

function startMinimal(kind: RuntimeKind): Promise<AgentPod> {
  const args = ['--template', templateOf(kind)]
  return benchPod({ runtime: kind, installed: minimalFolder, args })
}

function templateOf(kind: RuntimeKind): string {
  return join(folder, `${kind}.json`)
}

async function measureStarts(): Promise<void> {
  const [listening, answer] = [noTimes(), noTimes()]
  for (let round = 0; round < START_ROUNDS; round++) {
    const bare = await bareStartMs(join(minimalFolder, 'node'))
    for (const each of [listening, answer]) each.bare.push(bare)
    for (const name of ['ours', 'minimal'] as const) {
      const socket = join(folder, `${name}-${round}.sock`)
      const { vminit, ms } = await startListening(name === 'ours' ? agentFolder : minimalFolder, socket)
      listening[name].push(ms)
      answer[name].push(ms + (await elapsedMs(() => checkAgent(socket))))
      await endChild(vminit)
    }
  }
  reportTimes('start to listening', listening, 1.25)
  reportTimes('start to first answer', answer, 1.25)
}

async function measureChecks({ pod, minimal }: Trio): Promise<void> {
  const { client, pids } = await servers.startRelayed([])
  const trio = (atOnce: number) => ({
    bare: calls(CHECKS_A_ROUND, pids, () => client.call('bare', '0', new Uint8Array(0)), atOnce),
    ours: calls(CHECKS_A_ROUND, pidsOf(pod), () => pod.started.health.check({}), atOnce),
    minimal: calls(CHECKS_A_ROUND, pidsOf(minimal), () => minimal.started.health.check({}), atOnce),
  })
  const [one, many] = [trio(1), trio(AT_ONCE)]
  await measureCalls([...Object.values(one), ...Object.values(many)], CALL_ROUNDS)
  client.close()
  for (const [name, { ours, minimal, bare }] of [
    ['Check', one],
    [`${AT_ONCE} Checks at once`, many],
  ] as const) {
    const times = { ours: ours.elapsed, minimal: minimal.elapsed, bare: bare.elapsed }
    const [agentCpu = 0, brokerCpu = 0] = ours.cpu.map(median)
    const [minimalCpu = 0, minimalBrokerCpu = 0] = minimal.cpu.map(median)
    const [bareCpu = 0, relayCpu = 0] = bare.cpu.map(median)
    const cpu = { agentCpu, brokerCpu, minimalCpu, minimalBrokerCpu, bareCpu, relayCpu }
    reportTimes(name, times, 1.25, cpu, 'us')
  }
}

function pidsOf({ started }: AgentPod): readonly number[] {
  return [started.agentPid(), brokerOf(started.vminitPid)]
}

async function measureExecs(trio: Trio): Promise<void> {
  const { kind, pod, minimal, bare } = trio
  const times = noTimes()
  let cpu = countCpu(trio)
  await bare.start('bare', ['/bin/sleep', '1000000'])
  for (let round = 0; round < WARM_UP_ROUNDS + EXEC_ROUNDS; round++) {
    if (round === WARM_UP_ROUNDS) {
      for (const side of SIDES) times[side].length = 0
      cpu = countCpu(trio)
    }
    times.bare.push(await bare.execTrue('bare'))
    times.ours.push(await elapsedMs(() => execTrue(pod.agent, 'model', `true-${round}`)))
    times.minimal.push(await elapsedMs(() => execTrue(minimal.agent, 'model', `true-${round}`)))
  }
  await bare.remove('bare')
  reportTimes(`exec true, ${kind}`, times, 1.1, cpu(EXEC_ROUNDS))
}

async function measureLives(trio: Trio): Promise<void> {
  const { kind, pod, minimal, bare } = trio
  const [lives, removals] = [noTimes(), noTimes()]
  let cpu = countCpu(trio)
  for (let round = 0; round < WARM_UP_ROUNDS + LIFE_ROUNDS; round++) {
    if (round === WARM_UP_ROUNDS) cpu = countCpu(trio)
    const run = await bare.run('bare', ['/bin/true'])
    const deletion = await bare.delete('bare')
    const each = { bare: [run, deletion], ours: await lifeMs(pod), minimal: await lifeMs(minimal) }
    if (round < WARM_UP_ROUNDS) continue
    for (const name of SIDES) {
      const [run = 0, removal = 0] = each[name]
      lives[name].push(run + removal)
      removals[name].push(removal)
    }
  }
  reportTimes(`life of a container, ${kind}`, lives, LIFE_GOALS[kind], cpu(LIFE_ROUNDS))
  reportTimes(`RemoveContainer, ${kind}`, removals, REMOVE_GOAL_MS / median(removals.bare))
}

/** Begins to count the CPU time of both agents' own processes. The result is for one of `rounds`. */
function countCpu({ pod, minimal }: Trio): (rounds: number) => Readonly<Record<string, number>> {
  const pids = [pod.started.agentPid(), minimal.started.agentPid()]
  const before = pids.map(cpuMsOf)
  return (rounds) => {
    const [agentCpu = 0, minimalCpu = 0] = pids.map((pid, at) => (cpuMsOf(pid) - (before[at] ?? 0)) / rounds)
    return { agentCpu, minimalCpu }
  }
}

/** The milliseconds until the end of a container, and of its removal. */
async function lifeMs(pod: AgentPod): Promise<readonly [number, number]> {
  const run = await elapsedMs(async () => {
    await pod.run('life', ['/bin/true'])
    const { status } = await pod.agent.waitProcess({ containerId: 'life', execId: '' })
    if (status !== 0) throw new Error(`true ended with ${status}`)
  })
  return [run, await elapsedMs(() => pod.remove('life'))]
}

/** The bare measure is the agent's start. The minimal agent restores nothing. */
async function measureDeaths(): Promise<void> {
  const times = noTimes()
  const pod = await benchPod({ installed: agentFolder })
  const minimal = await startMinimal('runc')
  try {
    await pod.run('model', ['/bin/sleep', '1000000'])
    for (let round = 0; round < START_ROUNDS; round++) {
      const { vminit, ms } = await startListening(agentFolder, join(folder, `death-${round}.sock`))
      await endChild(vminit)
      times.bare.push(ms)
      times.ours.push(await deathMs(pod))
      times.minimal.push(await deathMs(minimal))
    }
  } finally {
    await pod.stop()
    await minimal.stop()
  }
  reportTimes('death to first answer', times, 1.4)
}

function deathMs({ agent, started }: AgentPod): Promise<number> {
  const pid = started.agentPid()
  return elapsedMs(() => {
    process.kill(pid, 'SIGKILL')
    return agent.statsContainer({ containerId: 'model' })
  })
}

function noTimes(): Times {
  return { ours: [], minimal: [], bare: [] }
}

/** The fastest tenths suffer least from other work on the machine. */
function reportTimes(
  name: string,
  times: Times,
  limit: number,
  cpu: Readonly<Record<string, number>> = {},
  unit: 'ms' | 'us' = 'ms',
): void {
  const { ours, minimal, bare } = times
  const figure = `${name}, beside a minimal agent`
  const tenths = { tenth: tenthOf(ours), minimalTenth: tenthOf(minimal), bareTenth: tenthOf(bare) }
  const medians = { value: median(ours), minimal: median(minimal), floor: median(bare) }
  report({ figure, unit, ...medians, limit, phases: { ...tenths, ...cpu } })
}

/** A tenth of the values is below it. */
function tenthOf(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 10)] ?? 0
}
