import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, vi } from 'vitest'
import { messageOf } from '../../../src/base/errors.ts'
import { projectRoot } from '../../../src/build/project.ts'
import { type Pod, podOf, RemoteProcess } from '../containers/pod.ts'
import {
  type AgentPod,
  initPidOf,
  inNamespaceOf,
  leftoversOf,
  NOTHING_LEFT,
  startPod,
} from '../host/agent-pod.ts'
import type { AgentConnection, AgentProcess } from '../host/agent-process.ts'
import { type HostPorts, listenForMany, type ManyConnections, makeHostPorts } from '../host/host-ports.ts'
import { ResumingReader } from '../host/resuming-host.ts'
import { processes } from '../processes.ts'
import { temporaryFolder } from '../temporary-folder.ts'

export const DISK = '/run/kata-containers/disk'
export const STAYS = 'stays'
const FIRST_PORT = 7000
const LINES = 2000
const ALL = Array.from({ length: LINES }, (_, line) => `${line + 1}\n`).join('')
const PRINT = `while read line; do seq ${LINES} >&2; echo ok; done`
const PROGRAM = join(projectRoot, 'test/support/kills/kill-at-step.ts')
/** vminit ends at the sixth death of a broker within a minute. */
const MOST_DEATHS = 5
const DIED_BY_KILL = 137
const LATE = { timeout: 60_000 }

export type Victim = 'broker' | 'container'

/** A container that prints numbered lines to a port of the host at each line of its input. */
interface Printer {
  readonly id: string
  readonly reader: ResumingReader
  readonly port: ManyConnections
  /** Rejects when bytes are lost. */
  readonly reading: Promise<never>
}

/** A pod with a disk and a container that stays, for calls at whose steps a process is killed. */
export class LifecycleStage {
  /** Another one after the death of a broker. */
  connection: AgentConnection
  readonly #pod: AgentPod
  readonly #host: HostPorts
  readonly #folder: string
  readonly #stays: Printer
  #rounds = 0
  #deaths = 0

  static async start(): Promise<LifecycleStage> {
    const host = makeHostPorts({ stream_grace: '{ secs = 300 }', stream_resume: 'true' })
    const folder = temporaryFolder()
    const environment = { NODE_OPTIONS: `--require ${PROGRAM}`, MICROVM_KILL_STEPS: folder }
    const pod = await startPod({ settings: host.settings, environment })
    mountDisk(pod.started)
    return new LifecycleStage(pod, host, folder, await print(pod, host, STAYS, FIRST_PORT))
  }

  constructor(pod: AgentPod, host: HostPorts, folder: string, stays: Printer) {
    this.#pod = pod
    this.connection = pod.started
    this.#host = host
    this.#folder = folder
    this.#stays = stays
  }

  get started(): AgentProcess {
    return this.#pod.started
  }

  /** Whether no other broker may die here. */
  get isWorn(): boolean {
    return this.#deaths >= MOST_DEATHS
  }

  async stop(): Promise<void> {
    this.#stays.port.close()
    await this.#pod.stop()
    this.#host.remove()
  }

  /**
   * Runs `play`, and kills the victim at a step of it; 0 kills nothing. `end` follows over a connection that works. Afterwards
   * the victim has ended like any process that is killed, and nobody else has noticed. Returns the steps that there were.
   */
  async play(
    victim: Victim,
    step: number,
    { play, end }: { play: (ids: readonly string[]) => Promise<void>; end: () => Promise<void> },
  ): Promise<{ readonly steps: readonly string[]; readonly hasDied: boolean }> {
    this.#rounds += 1
    const id = `victim-${this.#rounds}`
    const dies =
      victim === 'container' ? await print(this.#now, this.#host, id, FIRST_PORT + this.#rounds) : undefined
    if (dies !== undefined) await this.#count(dies)
    await this.#process(STAYS).write('go\n')
    const pid = dies === undefined ? brokerOf(this.started) : initPidOf(this.started, id)
    this.#arm(step, pid)
    const playing = play(dies === undefined ? [STAYS] : [STAYS, id])
    // A container's death fails no call. With the broker its clients' connections go.
    if (victim === 'container') await playing
    else await playing.catch((error) => expect(error).toMatchObject({ code: 'UNAVAILABLE' }))
    const { steps, hasDied } = this.#disarm()
    if (hasDied && victim === 'broker') await this.#dialAgain()
    await end()
    await this.#process(STAYS).readUntil('ok\n')
    await hasPrinted(this.#stays, this.#rounds)
    if (dies !== undefined) await this.#endOf(dies, hasDied)
    return { steps, hasDied }
  }

  async #endOf(dies: Printer, hasDied: boolean): Promise<void> {
    const { id, port } = dies
    if (hasDied) expect(await this.#process(id).wait()).toBe(DIED_BY_KILL)
    await hasPrinted(dies, 1)
    await this.#now.remove(id)
    port.close()
    // Other processes stay.
    const nothingLeft = () =>
      expect({ ...leftoversOf(this.started, id), processes: [] }).toEqual(NOTHING_LEFT)
    await vi.waitFor(nothingLeft, LATE)
  }

  get #now(): Pod {
    return podOf(this.connection.agent, this.#pod.root)
  }

  #process(id: string): RemoteProcess {
    return new RemoteProcess(this.connection.agent, id)
  }

  async #count({ id }: Printer): Promise<void> {
    await this.#process(id).write('go\n')
    await this.#process(id).readUntil('ok\n')
  }

  #arm(step: number, victim: number): void {
    rmSync(join(this.#folder, 'steps'), { force: true })
    writeFileSync(join(this.#folder, 'plan'), JSON.stringify({ step, victim, only: '' }))
  }

  #disarm(): { readonly steps: readonly string[]; readonly hasDied: boolean } {
    const [plan, file] = [join(this.#folder, 'plan'), join(this.#folder, 'steps')]
    const hasDied = !existsSync(plan)
    rmSync(plan, { force: true })
    const steps = existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n') : []
    return { steps, hasDied }
  }

  async #dialAgain(): Promise<void> {
    this.#deaths += 1
    await this.connection.closed
    this.connection = await this.started.connect()
    await this.connection.health.check({})
  }
}

async function print(pod: Pod, host: HostPorts, id: string, number: number): Promise<Printer> {
  const port = await listenForMany(join(host.folder, `port_${number}`))
  const reader = new ResumingReader()
  const follow = async (): Promise<never> => {
    // An agent may die after it has dialled.
    const isInVain = (error: unknown) => {
      if (!messageOf(error).startsWith('it ended after')) throw error
    }
    for (;;) await reader.read(await port.next()).catch(isInVain)
  }
  const reading = follow()
  // Its failure shows when the bytes are awaited.
  reading.catch(() => {})
  await pod.run(id, ['sh', '-c', PRINT], { ports: { stderrPort: number } })
  return { id, reader, port, reading }
}

/** Nothing is lost, and nothing comes twice. */
async function hasPrinted({ reader, reading }: Printer, times: number): Promise<void> {
  const all = vi.waitFor(() => expect(reader.total).toBe(times * ALL.length), LATE)
  await Promise.race([all, reading])
  expect(reader.bytes.toString() === ALL.repeat(times)).toBe(true)
}

function mountDisk(started: AgentProcess): void {
  const image = join(temporaryFolder(), 'disk')
  execFileSync('truncate', ['-s', '16M', image])
  execFileSync('mkfs.ext4', ['-q', image])
  inNamespaceOf(started, 'mkdir', DISK)
  inNamespaceOf(started, 'mount', '-o', 'loop', image, DISK)
}

function brokerOf({ vminitPid }: AgentProcess): number {
  const broker = processes().find(({ parent, name }) => parent === vminitPid && name === 'api-broker')
  return broker?.pid ?? expect.fail('there is no broker')
}
