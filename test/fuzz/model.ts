import { setImmediate as turn } from 'node:timers/promises'
import fc from 'fast-check'
import { COMMANDS_A_CASE } from '../../scripts/test/model-run.ts'
import { neverAborted } from '../../src/base/abort.ts'
import { errnoOf, messageOf } from '../../src/base/errors.ts'
import { SIGKILL } from '../../src/base/signals.ts'
import { LinuxResources } from '../../src/gen/oci.ts'
import { kernelError } from '../../src/os/errors.ts'
import type { Settled } from '../../src/os/supervisor/broker.ts'
import type { RequestState } from '../../src/os/supervisor/broker-messages.ts'
import type { Call, Taken } from '../../src/state/request.ts'
import { EMPTY_RESPONSE } from '../../src/state/request-journal.ts'
import { FakeOs } from '../support/fakes/fake-os.ts'
import { MemoryStateFiles } from '../support/fakes/files/memory-state-files.ts'
import { FakeRequests } from '../support/handlers/fake-requests.ts'
import { FakeRuntime } from '../support/handlers/fake-runtime.ts'
import {
  containerRequest,
  execRequest,
  type Machine,
  machine,
  sandboxRequest,
} from '../support/handlers/machine.ts'
import { ERRNOS, type Errno, type Fault, MortalOs } from './mortal-os.ts'

const ACTIONS = [
  ...['create', 'create', 'start', 'start', 'exec', 'exec', 'exec'],
  ...['exec on a terminal', 'exec on a terminal', 'exec on a terminal'],
  ...['read', 'read much', 'write', 'close stdin', 'wait', 'pause', 'resume', 'update', 'signal', 'crash'],
  ...['remove', 'remove', 'remove', 'output', 'end', 'out of memory', 'await out of memory'],
  ...['time passes', 'time passes'],
] as const

const OUTCOMES = [
  ...['fails', 'fails', 'fails', 'is late', 'is never answered'],
  ...['the store is full', 'the store is full'],
] as const

/** One step of a run: an action, its object, the turns of the event loop until the next step, and what goes wrong. */
export interface Command {
  readonly action: 'nothing' | 'destroy' | (typeof ACTIONS)[number]
  readonly container: string
  readonly process: string
  readonly turns: number
  readonly ms: number
  readonly fault: Fault | undefined
  /** From this change of the state on, counted from 1, changes fail until the next command. */
  readonly stateFails: { readonly from: number; readonly errno: Errno } | undefined
  /** Whether SIGKILL ends no process until the next command. */
  readonly outlives: boolean
  /** Whether the caller leaves; `answer` is the fate of the answer. */
  readonly leaves: boolean
  readonly answer: 'delivered' | 'dropped' | 'on its way'
}

export interface Life {
  readonly cgroup: 'v1' | 'v2'
  /** The initial state of container `c1`; a running one has the exec `e1`. */
  readonly first: 'nothing' | 'created' | 'running'
  readonly commands: readonly Command[]
}

export function lives(): fc.Arbitrary<Life> {
  const nothing: Command = {
    ...{ action: 'nothing', container: 'c1', process: '', turns: 0, ms: 0, fault: undefined },
    ...{ stateFails: undefined, outlives: false, leaves: false, answer: 'delivered' },
  }
  const seldom = <T>(arbitrary: fc.Arbitrary<T>) =>
    fc.oneof({ weight: 2, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary })
  const errno = fc.constantFrom(...ERRNOS)
  const fault = fc.record({
    at: fc.oneof(...[6, 16, 48].map((max) => fc.integer({ min: 1, max }))),
    errno,
    what: fc.constantFrom(...OUTCOMES),
  })
  const command = fc.record({
    action: fc.oneof(
      { weight: 150, arbitrary: fc.constantFrom(...ACTIONS) },
      { weight: 1, arbitrary: fc.constant('destroy' as const) },
    ),
    container: fc.constantFrom('c1', 'c1', 'c2'),
    process: fc.constantFrom('', 'e1', 'e2'),
    turns: fc.constantFrom(0, 1, 3, 20),
    ms: fc.constantFrom(0, 1, 500, 2000, 60_000),
    fault: seldom(fault),
    stateFails: seldom(fc.record({ from: fc.constantFrom(1, 1, 2, 2, 3, 5), errno })),
    outlives: fc.constantFrom(false, false, false, false, true),
    leaves: fc.constantFrom(false, false, false, true),
    answer: fc.constantFrom('delivered', 'dropped', 'on its way'),
  })
  const either = fc.oneof(
    { withCrossShrink: true, maxDepth: 1 },
    { weight: 1, arbitrary: fc.constant(nothing) },
    { weight: 30, arbitrary: command },
  )
  return fc.record({
    cgroup: fc.constantFrom('v1', 'v2'),
    first: fc.constantFrom('nothing', 'created', 'running', 'running'),
    commands: fc.array(either, { minLength: COMMANDS_A_CASE, maxLength: COMMANDS_A_CASE }),
  })
}

type Troubles = Partial<Pick<Command, 'fault' | 'stateFails' | 'outlives'>>

type Send = (signal: AbortSignal, number: bigint, takes: Call['takes']) => Promise<unknown>

interface Made {
  readonly command: Command
  readonly number: bigint
  readonly call: Send
  outcome: 'pending' | 'answered' | 'failed'
  /** The fate of the answer; undefined while it is on its way. */
  told: Settled | undefined
  tell: (isDelivered: boolean) => void
}

/** The calls whose answers outlive the agent. */
const KEPT: readonly Command['action'][] = [
  ...([
    'create',
    'start',
    'exec',
    'exec on a terminal',
    'pause',
    'resume',
    'remove',
    'signal',
    'destroy',
  ] as const),
]

/** More turns of the loop, with time passing, than any call needs. */
const MOST_TURNS = 300

export class ModelRun {
  readonly #os = new FakeOs()
  readonly #runtime = new FakeRuntime(this.#os)
  readonly #kill = this.#os.system.onKill
  /** Killed processes that end later. */
  readonly #outlived = new Set<number>()
  #state = new MemoryStateFiles()
  #agent = new MortalOs(this.#os)
  #machine: Machine | undefined
  #made: Made[] = []
  #requests = new FakeRequests()
  #numbers = 0n
  #stateHasFailed = false
  #cgroup: Life['cgroup'] = 'v1'
  #crashes = 0
  #kills = 0
  /** The refused descriptors of this agent that have failed a call. */
  readonly #refused = new Set<string>()
  #wrong: string | undefined
  /** Whether DestroySandbox was called. A failed one can only be repeated. */
  #isToGo = false

  async begin({ cgroup, first }: Omit<Life, 'commands'>): Promise<void> {
    this.#cgroup = cgroup
    if (cgroup === 'v2') await this.#os.files.put('/sys/fs/cgroup/cgroup.controllers', 'memory\n')
    await this.#restart({})
    await this.#calls.createSandbox(sandboxRequest(), neverAborted)
    if (first === 'nothing') return
    await this.#countKills('c1')
    await this.#calls.createContainer(containerRequest('c1'), neverAborted)
    if (first === 'created') return
    await this.#calls.startContainer({ containerId: 'c1' }, neverAborted)
    await this.#calls.execProcess(execRequest('c1', 'e1'), neverAborted)
  }

  get #calls(): Machine['handlers'] {
    if (this.#machine === undefined) throw new Error('there is no agent')
    return this.#machine.handlers
  }

  async do(command: Command): Promise<void> {
    this.#breakAt(command)
    if (command.action === 'crash') await this.#crash(command)
    else this.#act(command)
    for (let count = 0; count < command.turns; count++) await turn()
  }

  #breakAt({ fault, stateFails, outlives }: Troubles): void {
    this.#repair()
    this.#agent.strike(fault)
    let changes = 0
    this.#state.beforeChange = (path) => {
      changes += 1
      if (stateFails === undefined || changes < stateFails.from) return
      this.#stateHasFailed = true
      throw kernelError('write', path, stateFails.errno)
    }
    if (outlives === true) {
      this.#os.system.onKill = (pid, signal) => signal === SIGKILL && this.#outlive(pid)
    }
  }

  /** A process of a created container survives the kill; any other process ends at the end of the run. */
  #outlive(pid: number): void {
    const id = this.#runtime.processes.find((process) => process.pid === pid)?.containerId ?? ''
    const state = this.#machine?.context.containers.tryGet(id)?.state
    if (state === undefined || !('parts' in state)) this.#outlived.add(pid)
  }

  #repair(): void {
    this.#agent.strike(undefined)
    this.#state.beforeChange = () => {}
    this.#os.system.onKill = this.#kill
  }

  #act(command: Command): void {
    const call = this.#callOf(command)
    if (command.action === 'create') void this.#countKills(command.container)
    if (call !== undefined) this.#make(command, call)
    if (call !== undefined && command.action === 'read much') {
      for (const { stdout } of this.#runtime.processes) this.#print(stdout)
      for (let count = 0; count < 130; count++) this.#make({ ...command, answer: 'on its way' }, call)
    }
    if (command.action === 'destroy') this.#isToGo = true
    this.#happen(command)
  }

  #callOf({ action, container, process, ms }: Command): Send | undefined {
    const calls = () => this.#calls
    const ofContainer = { containerId: container }
    const ofProcess = { ...ofContainer, execId: process }
    const bytes = ms === 0 ? 1 : 80_000
    const added = process === '' ? 'e3' : process
    const sends: Partial<Record<Command['action'], Send>> = {
      create: (...how) => calls().createContainer(containerRequest(container), ...how),
      start: (...how) => calls().startContainer(ofContainer, ...how),
      exec: (...how) => calls().execProcess(execRequest(container, added), ...how),
      'exec on a terminal': (...how) =>
        calls().execProcess(execRequest(container, added, { Terminal: true }), ...how),
      read: (...how) => calls().readStdout({ ...ofProcess, len: 3 }, ...how),
      'read much': (...how) => calls().readStdout({ ...ofProcess, len: 1 }, ...how),
      write: (...how) => calls().writeStdin({ ...ofProcess, data: Buffer.alloc(bytes) }, ...how),
      'close stdin': (...how) => calls().closeStdin(ofProcess, ...how),
      wait: (...how) => calls().waitProcess(ofProcess, ...how),
      pause: (...how) => calls().pauseContainer(ofContainer, ...how),
      resume: (...how) => calls().resumeContainer(ofContainer, ...how),
      update: (...how) =>
        calls().updateContainer({ ...ofContainer, resources: LinuxResources.fromPartial({}) }, ...how),
      remove: (...how) => calls().removeContainer({ ...ofContainer, timeout: ms > 1000 ? 0 : 1 }, ...how),
      signal: (...how) => calls().signalProcess({ ...ofProcess, signal: SIGKILL }, ...how),
      'await out of memory': (...how) => calls().getOomEvent({}, ...how),
      destroy: (...how) => calls().destroySandbox({}, ...how),
    }
    return sends[action]
  }

  #happen({ action, container, ms }: Command): void {
    const { processes } = this.#runtime
    const [first] = processes
    if (action === 'time passes') this.#os.clock.advance(ms)
    if (action === 'out of memory') void this.#killByOom(container)
    if (action === 'end' && first !== undefined) this.#runtime.end(first.pid, { code: 3 })
    if (action === 'output') for (const { stdout } of processes) this.#print(stdout)
  }

  /** The reader may be gone. */
  #print(stdout: number): void {
    try {
      this.#os.streams.tryWrite(stdout, Buffer.alloc(200))
    } catch (error) {
      if (errnoOf(error) !== 'EPIPE') throw error
    }
  }

  async #countKills(containerId: string): Promise<string> {
    const file =
      this.#cgroup === 'v2'
        ? `/sys/fs/cgroup/containers/${containerId}/memory.events`
        : `/sys/fs/cgroup/memory/containers/${containerId}/memory.oom_control`
    await this.#os.files.put(file, `oom_kill ${this.#kills}\n`)
    return file
  }

  /** Kills the last process of a container as out of memory. cgroup v1 reports the kill before it, v2 afterwards. */
  async #killByOom(containerId: string): Promise<void> {
    const file = await this.#countKills(containerId)
    if (this.#cgroup === 'v1') this.#os.cgroupEvents.happen(file)
    this.#kills += 1
    await this.#countKills(containerId)
    if (this.#cgroup === 'v2') this.#os.cgroupEvents.happen(file)
    const killed = this.#runtime.processes.findLast((process) => process.containerId === containerId)
    if (killed !== undefined) this.#runtime.end(killed.pid, { signal: SIGKILL })
  }

  #make(command: Command, call: Send): void {
    this.#numbers += 1n
    this.#send({
      ...{ command, call, number: this.#numbers, outcome: 'pending', told: undefined, tell: () => {} },
    })
  }

  #send(made: Made): void {
    const { command, number } = made
    const { action, answer, leaves, turns } = command
    const requests = this.#machine?.context.requests
    const hangup = new AbortController()
    const taken: Taken[] = []
    const takes = (one: Taken) => (made.outcome === 'failed' ? one.dropped() : void taken.push(one))
    made.tell = (isDelivered) => {
      made.told = isDelivered ? 'written' : 'dropped'
      for (const one of taken.splice(0)) attempt(() => (isDelivered ? one.delivered() : one.dropped()))
    }
    this.#made.push(made)
    const serve = async () => {
      requests?.begin({ number, takes })
      const again = KEPT.includes(action) ? requests?.answerTo(number) : undefined
      await (again ?? made.call(hangup.signal, number, takes))
      if (KEPT.includes(action)) requests?.answer({ number, takes }, EMPTY_RESPONSE)
    }
    serve().then(
      () => {
        made.outcome = 'answered'
        if (answer !== 'on its way') made.tell(answer === 'delivered')
      },
      (error: unknown) => {
        made.outcome = 'failed'
        made.tell(false)
        if (action === 'create' || action.startsWith('exec')) this.#blame(messageOf(error))
      },
    )
    if (leaves) void this.#later(turns, () => hangup.abort(new Error('the caller has left')))
  }

  /** A descriptor that vminit refused may fail only the launch of its own process. */
  #blame(failure: string): void {
    const [refused] = /^store descriptor \S+/.exec(failure) ?? []
    if (refused === undefined) return
    if (this.#refused.has(refused)) this.#wrong ??= `${refused}: it failed two launches`
    this.#refused.add(refused)
  }

  /** Acts unless the agent dies meanwhile. */
  async #later(turns: number, act: () => void): Promise<void> {
    const agent = this.#agent
    for (let count = 0; count < turns; count++) await turn()
    if (!agent.isDead) act()
  }

  /** Kills the agent and starts agents until one has restored the state. */
  async #crash(command: Troubles): Promise<void> {
    for (let lives = 0; lives < 5; lives++) {
      await this.#die()
      if (await this.#restart(lives === 0 ? command : {})) return
      this.#repair()
    }
    throw new Error('no agent can restore what the one before has left')
  }

  async #die(): Promise<void> {
    await turn()
    this.#crashes += 1
    this.#agent.isDead = true
    this.#refused.clear()
    for (let count = 0; count < 3; count++) await turn()
    const { streams, descriptors } = this.#os
    const kept = new Set(
      this.#runtime.processes.flatMap(({ stdin, stdout, stderr }) => [stdin, stdout, stderr]),
    )
    for (const fd of descriptors.fds) kept.add(fd)
    for (const fd of streams.openFds) if (!kept.has(fd)) streams.close(fd)
    const state = new MemoryStateFiles()
    for (const name of this.#state.names()) state.write(name, this.#state.read(name) ?? Buffer.of())
    this.#state = state
  }

  async #restart(command: Troubles): Promise<boolean> {
    this.#agent = new MortalOs(this.#os)
    const { os } = this.#agent
    const before = this.#made.splice(0)
    this.#requests = new FakeRequests(before.flatMap(stateOf))
    this.#machine = await machine({
      requestSource: this.#requests,
      ...{ os: this.#os, runtime: this.#runtime, state: this.#state, wrap: () => os },
      config: { restarted: this.#crashes > 0 },
    })
    this.#breakAt(command)
    let isRestored: boolean | undefined
    this.#machine.handlers.restore().then(
      () => {
        isRestored = true
      },
      () => {
        isRestored = false
      },
    )
    await this.#until('the restore', () => isRestored !== undefined || this.#agent.hangs)
    for (const made of before) {
      if (made.outcome === 'pending' && isRestored === true) this.#send(made)
      else if (made.outcome !== 'failed') this.#made.push(made)
    }
    return isRestored === true
  }

  async #until(what: string, isOver: () => boolean): Promise<void> {
    for (let turns = 0; !isOver(); turns++) {
      if (turns === MOST_TURNS) throw new Error(`${what} does not end`)
      await turn()
      this.#os.clock.advance(turns * 10)
    }
  }

  /** Without further faults, everything must be usable and removable, and every call must end. */
  async end(): Promise<void> {
    this.#repair()
    for (const pid of this.#outlived) this.#runtime.end(pid, { signal: SIGKILL })
    if (this.#agent.hangs) await this.#crash({})
    for (let turns = 0; turns < 50; turns++) {
      await turn()
      this.#os.clock.advance(2000)
    }
    if (this.#sandbox() === 'active' && !this.#isToGo) await this.#use()
    await this.#destroy()
    await this.#until(`${this.#pending()}, which waits`, () => this.#pending() === '')
    for (const { number, told, tell } of this.#made) {
      if (this.#requests.earlierRequests.get(number) === 'answered') this.#requests.settle(number, 'written')
      else if (told === undefined) tell(true)
    }
    await turn()
    this.#os.clock.advance(100_000)
    for (let turns = 0; turns < 10; turns++) await turn()
    this.#expectNothing()
  }

  #sandbox(): string | undefined {
    return this.#machine?.context.sandboxState.view.name
  }

  #pending(): string {
    return this.#made.find(({ outcome }) => outcome === 'pending')?.command.action ?? ''
  }

  /** A created container must start, and a new one must be creatable. */
  async #use(): Promise<void> {
    const points = this.#os.mounts.entries.map(({ mountPoint }) => mountPoint)
    if (!points.includes('/run/sandbox-ns/ipc')) throw new Error('the sandbox has no namespaces')
    for (const { id, state } of this.#machine?.context.containers.list() ?? []) {
      const fifo = await this.#os.files.lstat(`/run/microvm-agent/runtime/state/${id}/exec.fifo`)
      const lives =
        'parts' in state && this.#runtime.processes.some(({ pid }) => pid === state.parts.init.pid)
      if (fifo === undefined || !lives || state.name === 'paused') continue
      await this.#succeeds(`StartContainer of ${id} (${state.name})`, () =>
        this.#calls.startContainer({ containerId: id }, neverAborted),
      )
    }
    await this.#succeeds('CreateContainer', () =>
      this.#calls.createContainer(containerRequest('c9'), neverAborted),
    )
    await this.#succeeds('StartContainer', () =>
      this.#calls.startContainer({ containerId: 'c9' }, neverAborted),
    )
  }

  async #succeeds(what: string, call: () => Promise<unknown>): Promise<void> {
    let outcome: { readonly error?: unknown } | undefined
    call().then(
      () => {
        outcome = {}
      },
      (error: unknown) => {
        outcome = { error }
      },
    )
    await this.#until(what, () => outcome !== undefined)
    if (outcome?.error !== undefined) throw new Error(`${what} fails`, { cause: outcome.error })
  }

  async #destroy(): Promise<void> {
    const isOver = () => ['destroyed', 'lost'].includes(this.#sandbox() ?? '')
    for (let tries = 0; tries < 2 && !isOver(); tries++) {
      await this.#succeeds('DestroySandbox', () => this.#calls.destroySandbox({}, neverAborted))
    }
    if (!isOver()) throw new Error(`the sandbox is ${this.#sandbox()}`)
  }

  #expectNothing(): void {
    const { streams, descriptors, clock, consoles } = this.#os
    const left = {
      containers: this.#machine?.context.containers.list().map(({ id }) => id),
      processes: this.#runtime.processes.length,
      fds: streams.openFds.length,
      stored: descriptors.stored,
      timers: this.#crashes === 0 ? clock.sleeping : 0,
      consoles: this.#crashes === 0 ? consoles.paths : [],
      // The requests that the agent failed to remove stay until the next agent.
      requests: this.#stateHasFailed
        ? []
        : this.#state.names().filter((name) => name.startsWith('requests/')),
    }
    if (this.#wrong !== undefined) throw new Error(this.#wrong)
    const text = JSON.stringify(left)
    const nothing = JSON.stringify({
      containers: [],
      processes: 0,
      fds: 0,
      stored: [],
      timers: 0,
      consoles: [],
      requests: [],
    })
    if (text !== nothing) throw new Error(`left: ${text}`)
  }
}

/** The broker's word to the next agent about a request. Half of the reported outcomes are unconfirmed. */
function stateOf({ number, outcome, told }: Made): readonly (readonly [bigint, RequestState])[] {
  if (outcome === 'pending') return [[number, 'open']]
  if (outcome === 'failed' || (told !== undefined && number % 2n === 0n)) return []
  return [[number, told ?? 'answered']]
}

/** The service only logs errors of an answer's end. */
function attempt(act: () => void): void {
  try {
    act()
  } catch {}
}

/** Shows a life without the commands that do nothing. */
export function showLife({ commands, ...begin }: Life): string {
  const done = commands.filter(({ action }) => action !== 'nothing')
  return [JSON.stringify(begin), ...done.map((command) => JSON.stringify(command))].join('\n')
}
