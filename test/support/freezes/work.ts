import { randomBytes } from 'node:crypto'
import type { Socket } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import { AgentError, messageOf } from '../../../src/base/errors.ts'
import { type Agent, agentOf } from '../../../src/client/container/container-session.ts'
import { IntrospectionDefinition } from '../../../src/gen/microvm/agent/v1/introspection.ts'
import { LifecycleDefinition } from '../../../src/gen/microvm/agent/v1/lifecycle.ts'
import { clientFor, type ServiceClient } from '../../../src/rpc/client.ts'
import type { CallOptions, TtrpcClient } from '../../../src/rpc/ttrpc/client.ts'
import { isBusy } from '../busy.ts'
import { execProcessRequest } from '../containers/container-requests.ts'
import { ResumingReader } from '../host/resuming-host.ts'
import { startAgentKiller } from '../vm/agent-killer.ts'
import { createPod, GUEST_PROC } from '../vm/guest-pod.ts'

interface Session {
  readonly connection: TtrpcClient
  readonly agent: Agent
  readonly introspection: ServiceClient<typeof IntrospectionDefinition>
  readonly lifecycle: ServiceClient<typeof LifecycleDefinition>
}

/** Of the host. */
export const PORT = 5001
/** With the kernel command line's word for streams that outlive their device. */
export const WORDS = ['agent.stream_grace=600', 'agent.stream_resume=true']

const PRINT = 'i=0; while :; do echo line $i; i=$((i + 1)); usleep 200000; done'
/** Descriptors of each process of the agent, then the numbers of mounts, processes and cgroups. */
const LOOK = `while read line; do
for each in $(ls -l /guest/proc/[0-9]*/exe 2> /dev/null | grep microvm-agent/ | grep -o '/guest/proc/[0-9]*'); do
  echo fds of $(head -c 30 $each/comm): $(ls $each/fd | wc -l)
done
echo mounts $(wc -l < /guest/proc/1/mountinfo)
echo end
done`
const GOES_ON_MS = 180_000
/** The agent opens and closes descriptors at any time. */
const FDS_BY_CHANCE = 12
const FALSE_ALARM = /has not answered|\bhung\b|soft lockup|rcu_sched|rpc in progress.*WARN|died too often/i

/** What a pod does while its guest stops and goes on, and what must be true of it afterwards. */
export class FrozenWork {
  /** What went wrong, in words. */
  readonly faults: string[] = []
  #session: Session | undefined
  #thawed = Promise.resolve()
  #thaw: () => void = () => {}
  #isOver = false
  #kills = 0
  readonly #lines = new Lines()
  readonly #portLines = new Lines()
  readonly #portReader = new ResumingReader((bytes) => this.#portLines.add(bytes.toString()))
  #portReading = Promise.resolve()
  #hasPort = false
  #reads = 0
  #echoed = 0
  #execs = 0
  #readers: Promise<unknown> = Promise.resolve()
  #probed: ReadonlyMap<string, number> | undefined

  get kills(): number {
    return this.#kills
  }

  /** Takes the next connection of the container that writes to {@link PORT}. */
  portConnected(socket: Socket): void {
    const read = () => this.#portReader.read(socket)
    // A connection that ends before its first bytes has carried none.
    const isInVain = (error: unknown) => messageOf(error).startsWith('it ended after')
    this.#portReading = this.#portReading.then(read).catch((error: unknown) => {
      if (!isInVain(error)) this.#fault(`port: ${messageOf(error)}`)
    })
  }

  /** Without vsock nothing is written to ports. */
  async begin(connection: TtrpcClient, hasPort: boolean): Promise<void> {
    this.#become(connection)
    this.#hasPort = hasPort
    const pod = await createPod(this.#now().agent, '05')
    await startAgentKiller(pod)
    await pod.run('printer', ['sh', '-c', PRINT])
    if (hasPort) await pod.run('port', ['sh', '-c', PRINT], { ports: { stdoutPort: PORT } })
    await pod.run('echoer', ['cat'])
    await pod.run('probe', ['sh', '-c', LOOK], { mounts: [GUEST_PROC] })
    this.#readers = Promise.all([this.#readLines(), this.#echo()])
  }

  /**
   * Brings all streams to a stop, if the loss of the connections is planned; else only begins no other calls. With a time,
   * the agent is killed that many milliseconds of the guest later.
   */
  async detach(killAfterMs: number | undefined, isPlanned: boolean): Promise<void> {
    if (killAfterMs !== undefined) {
      this.#kills += 1
      const data = Buffer.from(`${Math.round(killAfterMs)}\n`)
      const ask = { containerId: 'agent-killer', execId: '', data }
      await this.#repeat((agent, options) => agent.writeStdin(ask, options), `kill-${this.#kills}`)
    }
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#thawed = promise
    this.#thaw = resolve
    while (isPlanned) {
      try {
        await this.#now().lifecycle.detach({ timeoutMs: 600_000 })
        return
      } catch (error) {
        // A call without a key changes something.
        if (!(error instanceof AgentError) || error.code !== 'FAILED_PRECONDITION') throw error
      }
    }
  }

  /** Goes on with another connection. */
  async goOn(connection: TtrpcClient, generation: string): Promise<void> {
    this.#now().connection.close()
    this.#become(connection)
    const { lifecycle } = this.#now()
    const { number } = await lifecycle.resumed({ generation, seed: randomBytes(32) })
    const { state, steps } = await lifecycle.getResume({ number, timeoutMs: 60_000 })
    // Where the guest hardly runs, a step may be late.
    const isLate = (reason: string) => isBusy() && reason.startsWith('not done within')
    const failed = steps.filter((step) => step.state === 'failed' && !isLate(step.reason))
    if (state !== 'ready') this.#fault(`the repair ${generation} is ${state}`)
    for (const { name, reason } of failed) this.#fault(`step ${name} of the repair has failed: ${reason}`)
    await lifecycle.attach({})
    this.#thaw()
  }

  /** Begins a process that ends after some milliseconds. Resolves once its end was told, and is not told again. */
  async exec(ms: number): Promise<void> {
    this.#execs += 1
    const [execId, status] = [`x${this.#execs}`, this.#execs % 100]
    const request = execProcessRequest('echoer', execId, ['sh', '-c', `usleep ${ms * 1000}; exit ${status}`])
    await this.#repeat((agent, options) => agent.execProcess(request, options), `exec-${execId}`)
    const process = { containerId: 'echoer', execId }
    const told = await this.#repeat((agent, options) => agent.waitProcess(process, options), `wait-${execId}`)
    if (told.status !== status) this.#fault(`${execId} ended with ${told.status}, not ${status}`)
    const again = await this.#repeat((agent) =>
      agent.waitProcess(process, { timeoutMs: 60_000 }).then(() => true, notFound),
    )
    if (again) this.#fault(`the end of ${execId} was told twice`)
  }

  /** Waits until lines are read and echoed that were not before. */
  async goesOn(): Promise<void> {
    const reached = () =>
      new Map([
        ['lines', this.#lines.count],
        ['echoes', this.#echoed],
        ...(this.#hasPort ? [['lines of the port', this.#portLines.count] as const] : []),
      ])
    const before = reached()
    const late = Date.now() + GOES_ON_MS
    for (;;) {
      const standing = [...reached()].filter(([what, count]) => count < (before.get(what) ?? 0) + 2)
      if (standing.length === 0 || this.faults.length > 0) return
      if (Date.now() > late) {
        const { events } = await this.#now().introspection.getEvents({ afterSequence: 0n, timeoutMs: 0 })
        const told = events.flatMap(({ streamChanged }) => streamChanged ?? []).slice(-4)
        const text = told.map(({ action, total }) => `${action} at ${total}`).join(', ')
        return this.#fault(
          `${standing.map(([what, at]) => `${what} stand at ${at}`).join(', ')}; stream: ${text}`,
        )
      }
      await delay(10)
    }
  }

  /** Compares the guest with what it was at the first look. */
  async look(consoleText: string): Promise<void> {
    const restarts = async () =>
      (await this.#repeat(() => this.#now().introspection.getSandbox({}))).agentRestarts
    // The kill comes at a moment of the guest, which may be after it has gone on.
    const late = Date.now() + GOES_ON_MS
    while ((await restarts()) < this.#kills && Date.now() < late) await delay(100)
    const agentRestarts = await restarts()
    if (agentRestarts !== this.#kills)
      this.#fault(`${agentRestarts} restarts of the agent, ${this.#kills} kills`)
    const alarm = consoleText.split('\n').find((line) => FALSE_ALARM.test(line))
    if (alarm !== undefined) this.#fault(`the console says: ${alarm}`)
    const probed = await this.#probe()
    const before = this.#probed ?? probed
    this.#probed = before
    for (const [what, count] of probed) {
      const most = (before.get(what) ?? 0) + (what.startsWith('fds') ? FDS_BY_CHANCE : 0)
      if (count > most) this.#fault(`${count} ${what}, ${before.get(what)} at first`)
    }
  }

  async end(): Promise<void> {
    this.#isOver = true
    this.#thaw()
    await this.#readers
    this.#session?.connection.close()
  }

  async #probe(): Promise<ReadonlyMap<string, number>> {
    const key = { containerId: 'probe', execId: '' }
    await this.#repeat(
      (agent, options) => agent.writeStdin({ ...key, data: Buffer.from('\n') }, options),
      `look-${Math.random()}`,
    )
    let text = ''
    while (!text.endsWith('end\n')) {
      const { data } = await this.#read(key)
      text += Buffer.from(data).toString()
    }
    const entries = text.split('\n').flatMap((line) => {
      const [, what = '', count = ''] = /^(.*?)[ :]*(\d+)$/.exec(line) ?? []
      return what === '' ? [] : [[what, Number(count)] as const]
    })
    return new Map(entries)
  }

  async #readLines(): Promise<void> {
    const key = { containerId: 'printer', execId: '' }
    await this.#whileOn(async () => {
      const { data } = await this.#read(key)
      this.#lines.add(Buffer.from(data).toString())
    })
  }

  async #echo(): Promise<void> {
    const key = { containerId: 'echoer', execId: '' }
    await this.#whileOn(async () => {
      const line = `typed ${this.#echoed}\n`
      const write = (agent: Agent, options: CallOptions) =>
        agent.writeStdin({ ...key, data: Buffer.from(line) }, options)
      await this.#repeat(write, line.trim())
      let got = ''
      while (got.length < line.length) {
        const { data } = await this.#read(key)
        got += Buffer.from(data).toString()
      }
      if (got !== line) throw new Error(`'${got}' in place of '${line}'`)
      this.#echoed += 1
      await delay(200)
    })
  }

  /** With a name, so that bytes whose answer is lost come again. */
  #read(key: { readonly containerId: string; readonly execId: string }) {
    this.#reads += 1
    const options = { metadata: { 'output-read': `read ${this.#reads}` } }
    return this.#repeat((agent) => agent.readStdout({ ...key, len: 32_768 }, options))
  }

  async #whileOn(work: () => Promise<void>): Promise<void> {
    while (!this.#isOver && this.faults.length === 0) {
      try {
        await work()
      } catch (error) {
        if (!this.#isOver) this.#fault(messageOf(error))
      }
    }
  }

  /** Makes a call again on the next connection when the one that it had is lost; with a key, it happens once. */
  async #repeat<T>(call: (agent: Agent, options: CallOptions) => Promise<T>, key?: string): Promise<T> {
    const options = key === undefined ? {} : { metadata: { 'idempotency-key': key } }
    for (;;) {
      await this.#thawed
      const { agent, connection } = this.#now()
      try {
        return await call(agent, options)
      } catch (error) {
        const isLost = error instanceof AgentError && error.code === 'UNAVAILABLE'
        if (!isLost || this.#isOver) throw error
        // The loss is told before the agent is told to stand, or with it.
        while (this.#now().connection === connection && !this.#isOver) await delay(10)
      }
    }
  }

  #become(connection: TtrpcClient): void {
    this.#session = {
      connection,
      agent: agentOf(connection),
      introspection: clientFor(IntrospectionDefinition, connection),
      lifecycle: clientFor(LifecycleDefinition, connection),
    }
  }

  #now(): Session {
    if (this.#session === undefined) throw new Error('no connection')
    return this.#session
  }

  #fault(text: string): void {
    this.faults.push(text)
  }
}

function notFound(error: unknown): false {
  if (error instanceof AgentError && error.code === 'NOT_FOUND') return false
  throw error
}

/** Lines with numbers, in order. */
class Lines {
  count = 0
  #rest = ''

  /** Throws for a line that is missing, repeated or damaged. */
  add(text: string): void {
    const lines = (this.#rest + text).split('\n')
    this.#rest = lines.pop() ?? ''
    for (const line of lines) {
      if (line !== `line ${this.count}`) throw new Error(`'${line}' in place of line ${this.count}`)
      this.count += 1
    }
  }
}
